"""The records of a changelog as a view shows them: texts of their values, where each is, and which two are one update."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from fluss_lab.explorer.explorer_answers import Answer, cut_to_size, fits
from fluss_lab.explorer.texts.cell_texts import CELL_LENGTH_MAX, cell_texts
from fluss_lab.read.changelog.change_pages import Place, places
from fluss_lab.read.changelog.changelog import CHANGE_TYPE, COMMIT_TIMESTAMP

#: Places of the two records of one update: what was, and what is.
Pairs = Sequence[tuple[int, int]]

#: Columns that a view draws of a record; the detail of one record asks for all.
COLUMNS_DRAWN: Final = 12


def change_rows(
    records: pa.Table,
    columns: Sequence[str],
    zone: dt.tzinfo | None,
    pairs: Pairs,
    is_in_log: Callable[[Place], bool],
    beside: Mapping[str, Any],
) -> Answer:
    """Return records as an answer has them, in their order.

    Where a message does not hold all cells whole, only those of the first `COLUMNS_DRAWN` columns, cut as short as it takes.

    ``types``, ``rows`` (partition, bucket, offset, time in epoch milliseconds), ``times`` (as text in the zone), ``cells``, ``cut``
    (places of cells that are not whole), ``source`` (``g`` of what the cluster holds, else ``L``), ``pairs``.

    Args:
        records: With the columns of a changelog.
        columns: Those whose values are shown.
        zone: In which times with a zone are shown; None: the system's.
        pairs: Records that belong together.
        is_in_log: Whether the cluster holds a record.
        beside: What else the answer has.
    """
    found = places(records)
    arrays = [records.column(name).combine_chunks() for name in columns]
    answer = {
        **beside,
        "types": records.column(CHANGE_TYPE).to_pylist(),
        "rows": [[partition or None, bucket, str(offset), time] for time, partition, bucket, offset in found],
        "times": cell_texts(records.column(COMMIT_TIMESTAMP).combine_chunks(), zone)[0],
        "source": "".join("g" if is_in_log(place) else "L" for place in found),
        "pairs": [list(pair) for pair in pairs],
    }

    def with_cells(count: int, length: int) -> Answer:
        texts = [cell_texts(array, zone, length) for array in arrays[:count]]
        return answer | {
            "columns": list(columns[:count]),
            "cells": [[column[at] for column, _ in texts] for at in range(len(found))],
            "cut": [[row, number] for number, (_, shortened) in enumerate(texts) for row in shortened],
        }

    whole = with_cells(len(arrays), CELL_LENGTH_MAX)
    return whole if fits(whole) else cut_to_size(lambda length: with_cells(COLUMNS_DRAWN, length), CELL_LENGTH_MAX)


def update_pairs(records: pa.Table) -> Pairs:
    """Return the two records of each update that are both here."""
    types = records.column(CHANGE_TYPE).to_pylist()
    found = [place[1:] for place in places(records)]
    olds = {place: at for at, (kind, place) in enumerate(zip(types, found, strict=True)) if kind == "-U"}
    return [
        (olds[old], at)
        for at, (kind, (partition, bucket, offset)) in enumerate(zip(types, found, strict=True))
        if kind == "+U" and (old := (partition, bucket, offset - 1)) in olds
    ]


def net_pairs(records: pa.Table, key: Sequence[str]) -> Pairs:
    """Return the two rows of each net update: those of one key, with others between them.

    Args:
        records: Net changes, with the columns of the key.
        key: Names of the key's columns.
    """
    keys = zip(*(records.column(name).to_pylist() for name in key), strict=True)
    named = [(place[1:3], each) for place, each in zip(places(records), keys, strict=True)]
    types = records.column(CHANGE_TYPE).to_pylist()
    befores = {name: at for at, (kind, name) in enumerate(zip(types, named, strict=True)) if kind == "UPDATE_BEFORE"}
    return [
        (befores[name], at)
        for at, (kind, name) in enumerate(zip(types, named, strict=True))
        if kind == "UPDATE_AFTER" and name in befores
    ]
