"""A server's log file: key=value lines, the newest files kept."""

from __future__ import annotations

import json
import logging
import logging.handlers
from pathlib import Path
from typing import Final

from fluss_lab.model.times import format_moment

#: Three files of this size hold days of a busy server's log.
LOG_BYTES_MAX: Final = 5_000_000


def log_to(path: Path) -> None:
    """Log to a file as key=value lines; the three newest files are kept."""
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=LOG_BYTES_MAX, backupCount=2, encoding="utf-8")
    handler.setFormatter(_KeyValueFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)


#: What a record may have beside its message: which bucket it is about (see `BucketLogger`).
_FIELDS: Final = ("table", "partition", "bucket")


class _KeyValueFormatter(logging.Formatter):
    """One line a record: time, level, logger, thread, what it is about, the message, and a traceback on the same line."""

    def format(self, record: logging.LogRecord) -> str:
        moment = format_moment(int(record.created * 1000))
        line = f"time={moment} level={record.levelname} logger={record.name} thread={record.threadName}"
        for field in _FIELDS:
            if (value := getattr(record, field, None)) is not None:
                line += f" {field}={_shown(value)}"
        message = record.getMessage()
        line += f" {message}" if message.startswith("event=") else f" message={json.dumps(message)}"
        if record.exc_info:
            line += f" traceback={json.dumps(self.formatException(record.exc_info))}"
        return line.replace("\n", "\\n")


def _shown(value: object) -> str:
    """Return a value as it stands in a line: quoted, if it would not end at the next space."""
    text = str(value)
    return text if text and not set(text) & set(' ="') and text.isprintable() else json.dumps(text)
