"""What a proxy may do to a request instead of passing it on, and to which."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Delay:
    """Pass it on so much later."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer it so; the server never sees it."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class Reset:
    """Reset the connection; the server never sees the request."""


@dataclass(frozen=True, slots=True)
class LoseAnswer:
    """Have the server answer, then reset the connection: what was asked for is done, and who asked does not know."""


@dataclass(frozen=True, slots=True)
class SwapAnswer:
    """Have the server answer, then answer otherwise: what was asked for is done, and who asked hears something else."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class CutAnswer:
    """Pass on so many bytes of the answer's body, then reset the connection."""

    body_bytes: int


@dataclass(frozen=True, slots=True)
class Hang:
    """Answer nothing, and keep the connection until the fault is disarmed."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Read it whole and keep it until the fault is disarmed, then pass it on, whether or not who asked is still there.

    It must not be a request that waits for its server to say that it may go on.
    """


@dataclass(frozen=True, slots=True)
class Repeat:
    """Answer a request for the same again as the server answered the first, as an old copy of its data would."""


Fault = Delay | Answer | Reset | LoseAnswer | SwapAnswer | CutAnswer | Hang | Hold | Repeat

#: As S3 asks its clients to slow down, refuses their credentials, and says that its disks are full.
SLOW_DOWN: Final = Answer(
    503, b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>", "application/xml"
)
ACCESS_DENIED: Final = Answer(
    403, b"<Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>", "application/xml"
)
STORE_FULL: Final = Answer(
    507, b"<Error><Code>XMinioStorageFull</Code><Message>The drive is full.</Message></Error>", "application/xml"
)
#: As an Iceberg REST catalog says that it is not available, and that it does not know what became of a commit.
UNAVAILABLE: Final = Answer(503, b'{"error":{"message":"busy","type":"ServiceUnavailableException","code":503}}')
OUTCOME_UNKNOWN: Final = SwapAnswer(
    504, b'{"error":{"message":"late","type":"CommitStateUnknownException","code":504}}'
)


@dataclass(eq=False)
class ArmedFault:
    """A fault and the requests that it waits for.

    Attributes:
        fault: What is done.
        method: Of the requests, such as ``PUT``; None: any.
        path: A regular expression that is searched for in path and query.
        first: The how many-th of these requests is the first that it strikes, from 1.
        times: How many it strikes; None: all from then on.
        seen: How many of these requests there were.
        struck: How many it struck.
        held: Set when a request is held.
        answers: By path, those that are repeated.
    """

    fault: Fault
    method: str | None = None
    path: str = ""
    first: int = 1
    times: int | None = 1
    seen: int = 0
    struck: int = 0
    disarmed: threading.Event = field(default_factory=threading.Event)
    held: threading.Event = field(default_factory=threading.Event)
    answers: dict[str, bytes] = field(default_factory=dict)

    def strikes(self, method: str, path: str) -> bool:
        """Count a request, and return whether the fault strikes it. Not safe in several threads at once."""
        if self.disarmed.is_set() or self.method not in (None, method) or re.search(self.path, path) is None:
            return False
        self.seen += 1
        if self.seen < self.first or (self.times is not None and self.struck >= self.times):
            return False
        self.struck += 1
        return True
