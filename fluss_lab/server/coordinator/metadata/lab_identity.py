"""The identity of a lab and of what is in it: ids alone are used again when older metadata is restored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID, uuid4, uuid5

from fluss_lab.errors import CorruptDataError
from fluss_lab.server.coordinator.metadata.metadata_store import MetadataStore

_LAB_KEY: Final = "lab_id"
#: The first table and partition id whose folders were marked from the beginning; see `is_marked`.
_SINCE_KEY: Final = "identities_since"


@dataclass(frozen=True, slots=True)
class LabIdentity:
    """Names buckets so that no other bucket, of any lab or of any time, has the same name."""

    _lab: UUID
    _table_since: int
    _partition_since: int

    @staticmethod
    def load(store: MetadataStore) -> LabIdentity:
        """Return the identity in the metadata, which gets one when it has none.

        Raises:
            CorruptDataError: The lab id in it is not a UUID.
        """
        with store.write():
            if store.meta(_LAB_KEY) is None:
                store.set_meta(_SINCE_KEY, f"{store.peek_id('table')} {store.peek_id('partition')}")
                store.set_meta(_LAB_KEY, str(uuid4()))
        lab, since = store.meta(_LAB_KEY), store.meta(_SINCE_KEY)
        try:
            return LabIdentity.parse(lab, since)
        except ValueError as error:
            raise CorruptDataError(
                f"{store.path}: expected a lab id, found {lab!r} and {since!r}; restore the file from a backup"
            ) from error

    @staticmethod
    def find(values: Mapping[str, str]) -> LabIdentity | None:
        """Return the identity among the single values of metadata; None where there is none that can be read."""
        try:
            return LabIdentity.parse(values.get(_LAB_KEY), values.get(_SINCE_KEY))
        except ValueError:
            return None

    @staticmethod
    def parse(lab: str | None, since: str | None) -> LabIdentity:
        """Return the identity of a lab's id and the first ids that have marks, as the metadata has them.

        Raises:
            ValueError: They are none.
        """
        table_since, partition_since = (int(part) for part in str(since).split())
        return LabIdentity(UUID(str(lab)), table_since, partition_since)

    def of_bucket(self, table_id: int, table_ms: int, partition_id: int, partition_ms: int, bucket: int) -> str:
        """Return a bucket's identity, 32 hexadecimal digits.

        Args:
            table_ms: When that was made.
            partition_id: Its partition's, negative for none.
            partition_ms: When that was made.
            bucket: Its number.
        """
        return uuid5(self._lab, f"{table_id} {table_ms} {partition_id} {partition_ms} {bucket}").hex

    def is_marked(self, table_id: int, partition_id: int) -> bool:
        """Return whether a bucket's folder has its mark from the beginning; else it may be older than marks are."""
        return table_id >= self._table_since or partition_id >= self._partition_since
