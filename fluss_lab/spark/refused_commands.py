"""The statements that Spark would do with its own catalog, which has no table of a lab; and what is done instead.

Left to Spark they fail with a table that cannot be found, or, worse, do nothing (``DROP TABLE IF EXISTS``) or something beside the
lab (``CREATE DATABASE``) without a word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from fluss_lab.errors import UnsupportedError
from fluss_lab.spark.statement_names import Command

_WRITES: Final = frozenset({"InsertIntoStatement", "UpdateTable", "DeleteFromTable", "MergeIntoTable"})
#: Kinds of statements about a table; the first pattern that matches names what does it.
_TABLE_WAYS: Final = (
    (r"TruncateTable", 'make it anew by lab.drop_table("{path}") and lab.create_table("{path}", ...), or use its delete'),
    (r"Drop(Table|View)", 'use lab.drop_table("{path}")'),
    (r"(Create|Replace)\w*View\w*", "use CREATE TEMPORARY VIEW"),
    (r"(Create|Replace)\w*Table\w*", 'use lab.create_table("{path}", ...), which takes a schema and rows, also a frame\'s toArrow()'),
    (r"(Add|Drop|Rename)Partitions?|ShowPartitions|RepairTable|RecoverPartitions",
     'use add_partition, drop_partition and partitions of lab.table("{path}")'),
    (r"AddColumns|(Uns|S)etTableProperties", 'use alter of lab.table("{path}")'),
    (r"Show\w+|Describe\w+", 'use descriptor, schema and partitions of lab.table("{path}")'),
    (r"LoadData", 'use lab.load(file, "{path}", if_exists="append")'),
)  # fmt: skip
#: Kinds of statements about a database.
_DATABASE_WAYS: Final = (
    (r"SetCatalogAndNamespace", "name tables by their paths, as {path}.table"),
    (r"CreateNamespace", "it is there"),
    (r"DropNamespace", 'use lab.drop_database("{path}")'),
    (r"Show\w+", 'use lab.tables("{path}")'),
)
_NAMES: Final = {
    "DescribeRelationJsonCommand": "DESCRIBE AS JSON",
    "DescribeTablePartition": "DESCRIBE PARTITION",
    "SetCatalogAndNamespace": "USE",
    "ShowTableProperties": "SHOW TBLPROPERTIES",
}
_WORD_START: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
#: Kinds that make a table or view where there may be none yet.
_MAKES: Final = re.compile(r"(Create|Replace)\w*(Table|View)")


def check_commands(
    commands: Sequence[Command], has_table: Callable[[tuple[str, ...]], bool], has_database: Callable[[str], bool]
) -> None:
    """Check that a statement does nothing with a lab's tables and databases but to read and describe them.

    Args:
        commands: What it does.
        has_table: Returns whether the lab has a table of two name parts.
        has_database: Returns whether a name is that of a database of the lab, and of none of Spark's.

    Raises:
        UnsupportedError: It does; the text says what to use.
    """
    for command in commands:
        kind, path = command.kind, command.path
        if command.is_database:
            if len(path) == 1 and has_database(path[0]):
                raise _refused_command("databases", kind, path[0], _DATABASE_WAYS)
        elif len(path) == 2 and (has_table(path) or (_MAKES.match(kind) and has_database(path[0]))):
            if kind in _WRITES:
                raise _refused_write(".".join(path))
            raise _refused_command("tables", kind, ".".join(path), _TABLE_WAYS)


def _refused_write(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"sql: INSERT, UPDATE, DELETE and MERGE are not offered for tables of the lab, found one of {name}; write the "
        f'frame of a SELECT: lab.sql("select ...").write.format("fluss").mode("append").option("table", "{name}")'
        f'.save(), or use append, upsert and delete of lab.table("{name}")'
    )


def _refused_command(what: str, kind: str, name: str, ways: Sequence[tuple[str, str]]) -> UnsupportedError:
    shown = _NAMES.get(kind) or _WORD_START.sub(" ", kind).upper()
    way = next((way for pattern, way in ways if re.fullmatch(pattern, kind)), "Spark's own catalog does not have them")
    return UnsupportedError(
        f"sql: {shown} is not offered for {what} of the lab, found one of {name}; {way.format(path=name)}"
    )
