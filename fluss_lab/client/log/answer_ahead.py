"""The next answer of a bucket's server, asked for while the last one is decoded: client and server work at the same time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from fluss_lab.client.log.fetch_codec import FetchedBucket
from fluss_lab.errors import FlussError
from fluss_lab.interrupts import Flag, Held

log = logging.getLogger(__name__)


class AnswerAhead:
    """One fetch under way, in a thread that ends with its answer, whether anybody still wants that or not.

    Args:
        offset: The offset that is fetched from.
        fetch: The fetch: one attempt.
    """

    def __init__(self, offset: int, fetch: Callable[[], FetchedBucket]) -> None:
        self.offset = offset
        self._fetch = fetch
        self._found: FetchedBucket | None = None
        self._done = Flag()
        with Held():
            threading.Thread(target=self._run, name="read-ahead", daemon=True).start()

    def _run(self) -> None:
        try:
            self._found = self._fetch()
        except FlussError:
            pass  # who wants the answer asks again, and has time for more than one attempt
        except Exception:
            log.exception("reading ahead from offset %s failed", self.offset)
        finally:
            self._done.set()

    def take(self) -> FetchedBucket | None:
        """Wait for and return the answer; None when there is none."""
        self._done.wait()
        return self._found
