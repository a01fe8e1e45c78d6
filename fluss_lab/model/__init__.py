"""The words of the house: names, types, schemas, tables, options, offsets."""

from fluss_lab.model.changes import ChangeType
from fluss_lab.model.descriptor import PartitionInfo, TableDescriptor, TableInfo, make_descriptor
from fluss_lab.model.names import TableBucket, TablePath
from fluss_lab.model.offsets import LakeOffset, LakeSnapshot, OffsetSpec
from fluss_lab.model.schema import Column, Schema, make_schema
from fluss_lab.model.types import DataType

__all__ = [
    "ChangeType",
    "Column",
    "DataType",
    "LakeOffset",
    "LakeSnapshot",
    "OffsetSpec",
    "PartitionInfo",
    "Schema",
    "TableBucket",
    "TableDescriptor",
    "TableInfo",
    "TablePath",
    "make_descriptor",
    "make_schema",
]
