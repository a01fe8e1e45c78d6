"""Where a server is and what it wants to see."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from fluss_lab.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A coordinator's address and the token of its cluster. The token never shows in messages."""

    host: str
    port: int
    token: str = field(repr=False)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def to_json(self) -> str:
        """Return the address as text that `from_json` reads; it holds the token, so treat it as a secret."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> ServerAddress:
        """Read an address.

        Raises:
            InvalidRequestError: The text is none.
        """
        try:
            value = json.loads(text)
            return ServerAddress(str(value["host"]), int(value["port"]), str(value["token"]))
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidRequestError(f"not a server address in JSON ({type(error).__name__})") from error
