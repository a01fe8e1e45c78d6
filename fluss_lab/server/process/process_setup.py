"""The set-up of every server process: its log file, the return of free memory, an end when gRPC's thread dies."""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final

from fluss_lab.model.config.option_secrets import MASK, secrets_among, secrets_pattern
from fluss_lab.model.times import format_moment
from fluss_lab.periodic_work import Ticker
from fluss_lab.rpc.malloc_settings import MemoryRelease

#: Three files of this size hold days of a busy server's log.
LOG_BYTES_MAX: Final = 5_000_000


def log_to(path: Path, options: Mapping[str, str]) -> None:
    """Log to a file as key=value lines; the three newest files are kept.

    Args:
        path: The file.
        options: The server's; of what libraries say, in tracebacks too, their secrets are masked.
    """
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=LOG_BYTES_MAX, backupCount=2, encoding="utf-8")
    handler.setFormatter(_KeyValueFormatter(secrets_pattern(secrets_among(options))))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)


#: Fields of a record about a bucket (see `BucketLogger`).
_FIELDS: Final = ("table", "partition", "bucket")


class _KeyValueFormatter(logging.Formatter):
    """One line a record: time, level, logger, thread, bucket, the message, and a traceback on the same line."""

    def __init__(self, secrets: re.Pattern[str] | None) -> None:
        super().__init__()
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        moment = format_moment(int(record.created * 1000))
        line = f"time={moment} level={record.levelname} logger={record.name} thread={record.threadName}"
        for field in _FIELDS:
            if (value := getattr(record, field, None)) is not None:
                line += f" {field}={_field_text(value)}"
        message = record.getMessage()
        line += f" {message}" if message.startswith("event=") else f" message={json.dumps(message)}"
        if record.exc_info:
            line += f" traceback={json.dumps(self.formatException(record.exc_info))}"
        if self._secrets is not None:
            line = self._secrets.sub(MASK, line)
        return line.replace("\n", "\\n")


def _field_text(value: object) -> str:
    """Return a value as it stands in a line: quoted if it has spaces, quotes or unprintable characters."""
    text = str(value)
    return text if text and not set(text) & set(' ="') and text.isprintable() else json.dumps(text)


_INTERVAL_MS: Final = 2_000


@contextmanager
def periodic_memory_release() -> Iterator[None]:
    """Return free memory to the system periodically, in a thread of its own, within the block."""
    ticker = Ticker("memory", _INTERVAL_MS, MemoryRelease().look)
    ticker.start()
    try:
        yield
    finally:
        ticker.stop()


log = logging.getLogger(__name__)

#: As after SIGKILL nothing is cleaned up: a process without memory cannot, and recovery does not need it.
EXIT_CODE: Final = 70
#: Where gRPC takes events from its queue.
_SERVING: Final = ("_server.py", "_serve")


def end_when_serving_is_lost() -> None:
    """Have this process end when the thread dies in which gRPC serves. For processes that are servers and nothing else.

    That thread dies of what is raised in gRPC itself: a `MemoryError`, for instance, where a request's bytes find no room. The
    process would live on and receive no call. Whoever watches a server, its coordinator or the attached labs, starts one
    again that ended; of one that hangs, callers only time out.
    """

    def on_error(args: threading.ExceptHookArgs) -> None:
        lost = _is_serving(args.exc_traceback)
        try:
            threading.__excepthook__(args)
            if lost:
                log.critical("event=serving_lost error=%r", args.exc_value)
        finally:
            if lost:
                os._exit(EXIT_CODE)

    threading.excepthook = on_error


def _is_serving(trace: TracebackType | None) -> bool:
    file, function = _SERVING
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_name == function and os.path.basename(code.co_filename) == file:
            return True
        trace = trace.tb_next
    return False
