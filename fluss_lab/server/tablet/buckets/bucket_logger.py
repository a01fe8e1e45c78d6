"""Log lines that say which table and bucket they are about, for people and, as fields, for programs."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

from fluss_lab.model.names import TableBucket


class BucketLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger for one bucket: its name stands before each message, and ``table`` and ``bucket`` are in the record.

    Attributes:
        title: How messages and errors call the bucket: ``nyc.flights(2013-01) bucket 3 [t7/p2/b3]``.
    """

    def __init__(self, logger: logging.Logger, table: str, partition: str | None, bucket: TableBucket) -> None:
        super().__init__(logger, bucket_fields(table, partition, bucket))
        shown = table if partition is None else f"{table}({partition})"
        self.title = f"{shown} bucket {bucket.bucket} [{bucket}]"

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the bucket's name and fields to a message."""
        kwargs["extra"] = {**(self.extra or {}), **kwargs.get("extra", {})}
        return f"{self.title}: {msg}", kwargs


def bucket_fields(table: object, partition: str | None, bucket: TableBucket) -> dict[str, str | None]:
    """Return what a log record says of the bucket that it is about: for ``extra``."""
    return {"table": str(table), "partition": partition, "bucket": str(bucket)}
