"""Rows and definitions of a lab's table."""

from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round

SCHEMA = {"id": "bigint", "month": "string", "price": "decimal(10, 2)"}
LAKE = {"table.datalake.enabled": True}


def tier(table):
    """Run a round as `Table.tier` does, in this process."""
    lab = table.lab
    return run_round(lab.connection, lab.lake_storage(), LocalTieringExecutor(), table_id=table.info.table_id)


def rows(count, month="2013-01", start=0):
    return [{"id": start + i, "month": month} for i in range(count)]
