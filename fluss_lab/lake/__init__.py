"""The seam to the lake: interfaces that a lake format implements, and how it is found. `format_interfaces` says how to write one."""

from fluss_lab.lake.format_interfaces import (
    CommitterInitContext,
    LakeCatalog,
    LakeCommitter,
    LakeStorage,
    LakeTieringFactory,
    LakeWriter,
    SimpleVersionedSerializer,
    StorePlace,
    SupportsCreateFlussLogSource,
    SupportsEmptyBuckets,
    SupportsPinnedReads,
    SupportsStoreTrial,
    WriterInitContext,
    WriteTotals,
)
from fluss_lab.lake.format_plugin import lake_storage
from fluss_lab.lake.lake_splits import LakeSplit, splits_from_json, splits_to_json
from fluss_lab.lake.maintenance_interfaces import (
    CompactedFiles,
    CompactionPlan,
    ExpiredSnapshots,
    LakeFileInfo,
    LakeMaintenance,
    LakeSnapshotInfo,
    SupportsMaintenance,
)
from fluss_lab.lake.reader_interfaces import (
    FetchContext,
    FileColumn,
    FlussLogSource,
    LakeRecordPlace,
    LakeSource,
    LogFiles,
    LookupContext,
)
from fluss_lab.lake.snapshot_summary import CommittedLakeSnapshot
from fluss_lab.lake.system_columns import SYSTEM_COLUMNS, SYSTEM_FIELDS

__all__ = [
    "SYSTEM_COLUMNS",
    "SYSTEM_FIELDS",
    "CommittedLakeSnapshot",
    "CommitterInitContext",
    "CompactedFiles",
    "CompactionPlan",
    "ExpiredSnapshots",
    "FetchContext",
    "FileColumn",
    "FlussLogSource",
    "LakeCatalog",
    "LakeCommitter",
    "LakeFileInfo",
    "LakeMaintenance",
    "LakeRecordPlace",
    "LakeSnapshotInfo",
    "LakeSource",
    "LakeSplit",
    "LakeStorage",
    "LakeTieringFactory",
    "LakeWriter",
    "LogFiles",
    "LookupContext",
    "SimpleVersionedSerializer",
    "StorePlace",
    "SupportsCreateFlussLogSource",
    "SupportsEmptyBuckets",
    "SupportsMaintenance",
    "SupportsPinnedReads",
    "SupportsStoreTrial",
    "WriteTotals",
    "WriterInitContext",
    "lake_storage",
    "splits_from_json",
    "splits_to_json",
]
