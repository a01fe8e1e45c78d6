"""The tails of primary-key buckets, read by a thread while the files of the buckets before them are."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Final

from fluss_lab.closing import Closing
from fluss_lab.errors import FlussError
from fluss_lab.interrupts import Flag, Held
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.union.pk_merge import LiveTail, Tail, choose_tail
from fluss_lab.read.union.read_parts import BucketPart, Request

log = logging.getLogger(__name__)

#: Tails kept beside that of the bucket which is read: `pk_merge.TAIL_BYTES` each.
_AHEAD_MAX: Final = 2


class _Ahead:
    """A part, its tail, and whether that was looked at to its end."""

    __slots__ = ("done", "is_whole", "part", "tail")

    def __init__(self, source: TableSource, part: BucketPart, request: Request) -> None:
        self.part = part
        self.tail = choose_tail(source, part, request)
        self.done = Flag()
        self.is_whole = False


class TailsAhead(Closing):
    """Looks at the tails of parts in their order, a few ahead of the reader; an error is left for the reader to meet.

    A reader of some rows only (`Request.limit`, `Request.step_rows`) may never come to the next part: nothing is read
    ahead for it.

    Args:
        source: The table.
        parts: In the order in which they are read.
        request: What is wanted of them.
        looked: Tails of some of the parts that were looked at before.
    """

    def __init__(
        self, source: TableSource, parts: Sequence[BucketPart], request: Request, looked: Sequence[Tail | LiveTail] = ()
    ) -> None:
        self._looked = {tail.part.key: tail for tail in looked}
        takes_all = request.limit is None and request.step_rows is None and not source.info.is_log_table
        # The reader looks at the first by itself, at the same time.
        wanted = [part for part in parts[1:] if self._is_unread(part)] if takes_all else []
        self._pending = deque(_Ahead(source, part, request) for part in wanted)
        # A queue of permits: a semaphore's lock could be left acquired by an interrupt.
        self._room: SimpleQueue[None] = SimpleQueue()
        for _ in range(_AHEAD_MAX):
            self._room.put(None)
        self._is_closed = False
        if self._pending:
            with Held():
                threading.Thread(target=self._run, args=(list(self._pending),), name="tails-ahead", daemon=True).start()

    def take(self, part: BucketPart) -> Tail | LiveTail | None:
        """Return the tail of a part, already looked at; None: the reader looks at it by itself.

        Raises:
            KeyboardInterrupt: The main thread was interrupted.
        """
        if (tail := self._tail_of(part)) is not None:
            return tail
        if not any(each.part is part for each in self._pending):
            return None
        while True:
            each = self._pending.popleft()
            self._room.put(None)
            if each.part is part:
                each.done.wait()
                return each.tail if each.is_whole else None

    def close(self) -> None:
        """Have the thread end after the answer that it waits for."""
        self._is_closed = True
        self._room.put(None)

    def _is_unread(self, part: BucketPart) -> bool:
        return not part.live and part.lake_stop < part.stop and self._tail_of(part) is None

    def _tail_of(self, part: BucketPart) -> Tail | LiveTail | None:
        """Return the tail of a part that was looked at before there was a reader."""
        tail = self._looked.get(part.key)
        # A bucket's part that was planned again is another one.
        return tail if tail is not None and tail.part is part else None

    def _run(self, pending: Sequence[_Ahead]) -> None:
        for each in pending:
            self._room.get()
            try:
                each.is_whole = self._look_at(each.tail)
            except FlussError:
                pass  # the reader meets it, where it has more attempts, and a plan to change
            except Exception:
                log.exception("reading the log's end of %s ahead failed", each.part.bucket)
            finally:
                each.done.set()
            if self._is_closed:
                return

    def _look_at(self, tail: Tail | LiveTail) -> bool:
        if self._is_closed:
            return False
        return not any(self._is_closed for _ in tail.look())
