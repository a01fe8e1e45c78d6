"""Lookup joins: what a source that is looked up can do, how the stream is distributed for it, and tables as such sources.

In: key batches of a stream, a table at a read point.
Out: the rows of each key; the partition of each key.
"""

from fluss_lab.lookup.lookup_interfaces import (
    FunctionContext,
    InputDataPartitioner,
    LookupFunction,
    LookupJoinContext,
    LookupRows,
    LookupTableSource,
    Portable,
    SupportsLookupCustomShuffle,
    TaskInfo,
)

__all__ = [
    "FunctionContext",
    "InputDataPartitioner",
    "LookupFunction",
    "LookupJoinContext",
    "LookupRows",
    "LookupTableSource",
    "Portable",
    "SupportsLookupCustomShuffle",
    "TaskInfo",
]
