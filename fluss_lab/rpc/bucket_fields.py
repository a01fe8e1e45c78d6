"""The bucket fields of messages: a partition id is absent where the table has none.

The other way round needs no help: what is None when a message is made stays absent.
"""

from __future__ import annotations

from typing import Any

from fluss_lab.model.names import TableBucket


def partition_id_of(message: Any) -> int | None:
    """Return the partition id of a message with the optional field ``partition_id``; None where it is absent."""
    return message.partition_id if message.HasField("partition_id") else None


def bucket_of(message: Any, table_id: int | None = None) -> TableBucket:
    """Return the bucket of a message with ``bucket_id``.

    Args:
        message: With an optional ``partition_id``.
        table_id: Whose bucket it is, where the message does not say that itself.
    """
    return TableBucket(message.table_id if table_id is None else table_id, partition_id_of(message), message.bucket_id)
