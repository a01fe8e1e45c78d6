"""Rows of primary-key tables, and a check of them against the model."""

from tests.unit.read.keyed_kit import KeyedTable
from tests.unit.read.kit import rows_of


def row(key: int, name: str = "a") -> dict:
    return {"id": key, "name": name, "x": 1.5}


def check(table: KeyedTable, moment, **asked) -> None:
    """Hold a read of a moment against the model, in whole and by count."""
    scan = table.scan(**moment.asked, **asked)
    wanted = table.expected(moment.stops)
    assert rows_of(scan.to_arrow()) == [{name: each[name] for name in scan.schema.names} for each in wanted]
    assert scan.count() == len(wanted)


def unlaked(make_keyed) -> KeyedTable:
    """A table without a lake whose log lacks its beginning."""
    table = make_keyed(**{"table.datalake.enabled": False})
    for number in range(8):
        table.upsert([row(key, f"{number} of {key}") for key in range(60)])
        table.clock.advance(10)
    table.retain()
    assert all(status.start_offset > 0 for status in table.statuses().values()), "the log is whole: nothing is shown"
    return table
