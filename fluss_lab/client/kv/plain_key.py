"""One key of plain Python values, made into what travels without the care that whole columns need.

Only what needs no care is taken here: exact Python types of integers, text and bytes. All else, and all that is wrong,
is left to `fluss_lab.model.values.row_input`, which takes more forms and says what is wrong. It is ten times as fast, and half of
what a lookup of a single key costs its client.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from fluss_lab.client.kv.lookup_codec import Part
from fluss_lab.errors import FlussError
from fluss_lab.model import TableBucket, TableInfo
from fluss_lab.model.names import partition_name

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient
    from fluss_lab.client.write.row_routing import Router

#: Values of exactly these Python types are taken as they are, if Arrow does (it refuses integers out of range).
_PLAIN: Final = {
    "TINYINT": int,
    "SMALLINT": int,
    "INT": int,
    "BIGINT": int,
    "STRING": str,
    "BYTES": bytes,
}
_FIRST: Final = np.zeros(1, dtype=np.int64)


class PlainKeys:
    """Makes parts of a lookup of single keys of one table.

    Args:
        connection: To the cluster; asked for partitions that it knows.
        info: The table.
        router: Of the table.
    """

    def __init__(self, connection: ClusterClient, info: TableInfo, router: Router) -> None:
        self._connection, self._info, self._router = connection, info, router
        columns = [info.schema.column(name) for name in info.schema.primary_key]
        self._plain = all(column.type.name in _PLAIN for column in columns)
        self._columns = [(column.name, _PLAIN.get(column.type.name), column.type.arrow()) for column in columns]
        self._schema = pa.schema([column.type.arrow_field(column.name) for column in columns])

    def part(self, keys: object) -> Part | None:
        """Return the part that looks a key up; None when it is not a plain one, or not of a known partition.

        Args:
            keys: Whatever `Lookuper.lookup` was given.
        """
        key = keys[0] if type(keys) is list and len(keys) == 1 else keys
        if not self._plain or not isinstance(key, Mapping) or len(key) != len(self._columns):
            return None
        arrays = []
        for name, kind, arrow in self._columns:
            if type(value := key.get(name)) is not kind:
                return None
            try:
                arrays.append(pa.array([value], arrow))
            except (pa.ArrowException, OverflowError, UnicodeError):
                return None
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        partition_id = None
        if self._info.descriptor.partitioned_by and (partition_id := self._partition_id(key)) is None:
            return None
        bucket = TableBucket(self._info.table_id, partition_id, self._router.bucket_of_first(batch))
        return Part(bucket, batch, _FIRST)

    def _partition_id(self, key: Mapping[str, str]) -> int | None:
        try:
            name = partition_name(tuple(key[column] for column in self._info.descriptor.partitioned_by))
        except FlussError:
            return None
        found = self._connection.partitions(self._info, refresh=False).get(name)
        return None if found is None else found.partition_id
