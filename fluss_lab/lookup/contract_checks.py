"""The checks of what partitioners and lookup functions return: third parties write them, and a wrong answer is an error."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import InvalidError
from fluss_lab.lookup.lookup_interfaces import InputDataPartitioner, LookupFunction, LookupRows
from fluss_lab.lookup.portable import class_path, faults_named

Partitions: TypeAlias = npt.NDArray[np.int32]


def with_keys(keys: pa.RecordBatch) -> pa.BooleanArray:
    """Return which rows have no null among their keys: the others match nothing, and sources never see them."""
    valid = pa.array(np.ones(keys.num_rows, np.bool_))
    for column in keys.columns:
        valid = pc.and_(valid, column.is_valid())
    return valid


def partitions_of(partitioner: InputDataPartitioner, keys: pa.RecordBatch, partitions: int) -> Partitions:
    """Return the partition of each row; 0 where a key is null, which the partitioner is not asked for.

    Args:
        keys: The join keys alone, named and typed as the source's columns, in the source's order; nulls may be among them.

    Raises:
        InvalidError: The partitioner raised, or returned something else than an int32 in ``[0, partitions)`` for each row.
    """
    known = with_keys(keys)
    if not keys.num_rows or not known.true_count:
        return np.zeros(keys.num_rows, np.int32)
    asked = keys if known.true_count == keys.num_rows else keys.filter(known)
    what = f"{class_path(type(partitioner))}.partition"
    with faults_named(partitioner, "partition"):
        found = partitioner.partition(asked, partitions)
    if not isinstance(found, pa.Array) or found.type != pa.int32():
        kind = f"an array of {found.type}" if isinstance(found, pa.Array) else type(found).__name__
        raise InvalidError(f"{what}: expected an Arrow array of int32, found {kind}")
    if len(found) != asked.num_rows:
        raise InvalidError(f"{what}: expected the partitions of {asked.num_rows} rows, found {len(found)}")
    if found.null_count:
        raise InvalidError(f"{what}: expected no nulls, found one in row {pc.index(found.is_null(), True).as_py()}")
    numbers: Partitions = found.to_numpy()
    if (wrong := np.flatnonzero((numbers < 0) | (numbers >= partitions))).size:
        number = numbers[wrong[0]]
        raise InvalidError(f"{what}: expected partitions in [0, {partitions}), found {number} for row {wrong[0]}")
    if len(numbers) == keys.num_rows:
        return numbers
    spread = np.zeros(keys.num_rows, np.int32)
    spread[known.to_numpy(zero_copy_only=False)] = numbers
    return spread


def check_partitions(
    partitioner: InputDataPartitioner, keys: pa.RecordBatch, partitions: int, expected: Partitions
) -> None:
    """Check that a partitioner that says it is deterministic gives rows the partitions that it gave them before.

    Raises:
        InvalidError: It does not, or as of `partitions_of`.
    """
    found = partitions_of(partitioner, keys, partitions)
    if (wrong := np.flatnonzero(found != expected)).size:
        row = wrong[0]
        raise InvalidError(
            f"{class_path(type(partitioner))} says that it is deterministic, and gave the same join keys partition "
            f"{expected[row]}, then {found[row]} (of {partitions}); have is_deterministic return False, or partition by the "
            "keys alone"
        )


def rows_of(function: LookupFunction, keys: pa.RecordBatch, schema: pa.Schema, *, is_unique: bool) -> LookupRows:
    """Return what a function finds for keys.

    Args:
        keys: Without nulls; see `LookupFunction.lookup`.
        schema: The columns wanted; whether they may be null is not compared.
        is_unique: Whether a key has one row at most.

    Raises:
        InvalidError: The function raised, or returned something else than `LookupRows` promise.
    """
    what = f"{class_path(type(function))}.lookup"
    with faults_named(function, "lookup"):
        found = function.lookup(keys)
    if not isinstance(found, LookupRows) or not isinstance(found.rows, pa.RecordBatch):
        raise InvalidError(f"{what}: expected LookupRows with a record batch, found {_kind(found)}")
    at = found.positions
    if not isinstance(at, np.ndarray) or at.dtype != np.int64 or at.ndim != 1:
        raise InvalidError(f"{what}: expected positions as an array of int64, found {getattr(at, 'dtype', type(at))}")
    if [(field.name, field.type) for field in found.rows.schema] != [(field.name, field.type) for field in schema]:
        raise InvalidError(f"{what}: expected the columns {_text(schema)}, found {_text(found.rows.schema)}")
    if len(at) != found.rows.num_rows:
        raise InvalidError(f"{what}: expected a row for each of {len(at)} positions, found {found.rows.num_rows}")
    if len(at) and not 0 <= at.min() <= at.max() < keys.num_rows:
        raise InvalidError(f"{what}: expected positions in [0, {keys.num_rows}), found {at.min()} to {at.max()}")
    steps = np.diff(at)
    if (steps < 0).any():
        raise InvalidError(
            f"{what}: expected ascending positions, found {at[np.argmax(steps < 0)]} before a smaller one"
        )
    if is_unique and (steps == 0).any():
        position = at[np.argmax(steps == 0)]
        raise InvalidError(
            f"{what}: expected one row at most for a key, as is_unique says, found several at position {position}"
        )
    return found


def _kind(found: object) -> str:
    return f"LookupRows with {type(found.rows).__name__}" if isinstance(found, LookupRows) else type(found).__name__


def _text(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{field.name} {field.type}" for field in schema) + ")"
