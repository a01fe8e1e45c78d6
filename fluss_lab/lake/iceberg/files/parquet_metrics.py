"""Iceberg's metrics of a data file, from the statistics that its Parquet footer holds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    data_file_statistics_from_parquet_metadata,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, TimestampType, TimestamptzType

from fluss_lab.lake.iceberg.files.parquet_output import FinishedParquet

#: Types whose statistics Python shows as `datetime` objects, which end at the year 9999; Iceberg's do not.
_DATED: Final = (DateType, TimestampType, TimestamptzType)
_COUNTS: Final = MetricsMode(MetricModeTypes.COUNTS)
_NONE: Final = MetricsMode(MetricModeTypes.NONE)


@dataclass(frozen=True, slots=True)
class StatisticsPlan:
    """Which metrics each column gets, by field id, and the field id of each leaf column of a file by its path."""

    columns: Mapping[int, StatisticsCollector]
    ids: Mapping[str, int]

    def for_file(self, metadata: Any) -> dict[int, StatisticsCollector]:
        """Return the plan for one file: without bounds where a bound is a date that Python cannot hold."""
        columns = dict(self.columns)
        for position in range(metadata.num_columns):
            field_id = self.ids[metadata.schema.column(position).path]
            collector = columns[field_id]
            if isinstance(collector.iceberg_type, _DATED) and not _has_datetimes(metadata, position):
                columns[field_id] = replace(collector, mode=_COUNTS)
        return columns

    def only(self, field_ids: Collection[int]) -> StatisticsPlan:
        """Return the plan with no metrics but those of some fields."""
        columns = {
            field_id: collector if field_id in field_ids else replace(collector, mode=_NONE)
            for field_id, collector in self.columns.items()
        }
        return StatisticsPlan(columns, self.ids)


def _has_datetimes(metadata: Any, position: int) -> bool:
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(position).statistics
        if statistics is None or not statistics.has_min_max:
            continue
        try:
            _ = (statistics.min, statistics.max)
        except (ValueError, OverflowError, pa.ArrowException):
            return False
    return True


def data_file(
    finished: FinishedParquet,
    plan: StatisticsPlan,
    *,
    partition: Record,
    spec_id: int,
    sort_order_id: int | None,
    equality_ids: Sequence[int] | None = None,
) -> DataFile:
    """Return the data file, or equality-delete file, of a finished Parquet file.

    Args:
        finished: The file.
        plan: Which metrics are wanted.
        partition: Its partition values.
        spec_id: Of the partition spec these values are of.
        sort_order_id: Of the order its rows are in; None for no declared order.
        equality_ids: Of an equality-delete file the fields that it deletes by; None for a data file.

    Cost: 2 to 11 ms.
    """
    metadata = finished.metadata
    statistics = data_file_statistics_from_parquet_metadata(metadata, plan.for_file(metadata), dict(plan.ids))
    file = DataFile.from_args(
        content=DataFileContent.DATA if equality_ids is None else DataFileContent.EQUALITY_DELETES,
        file_path=finished.location,
        file_format=FileFormat.PARQUET,
        partition=partition,
        file_size_in_bytes=finished.size_bytes,
        sort_order_id=sort_order_id,
        equality_ids=None if equality_ids is None else list(equality_ids),
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
    file.spec_id = spec_id
    return file
