"""The display of a lab: its servers and tables, those first that need attention."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fluss_lab.client import Connection
from fluss_lab.client.table_listing import tables_by_database
from fluss_lab.display import Grid, card, plural, short
from fluss_lab.display.card import CARD_ROWS_MAX
from fluss_lab.display.marks import FAILED
from fluss_lab.errors import TableNotFoundError
from fluss_lab.model import TablePath
from fluss_lab.model.times import format_size, zone_text
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.workbench.cards.table_facts import TableFacts, states_by_path, table_facts

#: A person looks at a card, and does not wait for it: tables beyond are not asked.
_LOOK_S: Final = 1.0
_HEADERS: Final = ("table", "kind", "records", "lag", "state")
#: What is shown of a table that was not asked, or did not answer.
_NOT_ASKED: Final = "– not asked"


def lab_name(connection: Connection, folder: Path | None) -> str:
    """Return what a lab is called: as its folder, or, reached by its address, as its connection."""
    return folder.name if folder is not None else repr(connection).strip("<>")


def lab_html(connection: Connection, folder: Path | None) -> str:
    """Return a lab as a card; where its servers do not answer, why."""
    name = lab_name(connection, folder)
    facts: list[tuple[str, object]] = [("folder`", folder), ("times in", zone_text(connection.time_zone))]
    try:
        coordinator = connection.coordinator(connection.attempts("show the lab", 0))
        described = coordinator.describe_cluster(pb.DescribeClusterRequest())
        databases = tables_by_database(connection.admin())
        paths = [TablePath(database, name) for database, names in databases.items() for name in names]
        found = _look(connection, paths, described)
    except Exception as error:  # what is shown must not fail
        return card("Lab", name, facts, notes=[str(error) or type(error).__name__])
    known = [each for each in found if isinstance(each, TableFacts)]
    away = [each for each in described.tablet_server_status if each.state != "running"]
    return card(
        "Lab",
        name,
        [
            ("servers", _servers_text(described, away)),
            ("tables", f"{len(paths):,} in {plural(len(databases), 'database')}"),
            ("lake", _lake_text(known)),
            ("logs", format_size(sum(each.size_bytes for each in known)) if known else None),
            *facts,
        ],
        notes=[
            f"server {each.server_id} is {each.state}{f': {each.last_error}' if each.last_error else ''}"
            for each in away
        ],
        grid=Grid(
            _HEADERS, [_row(*each) for each in _order(paths, found)[:CARD_ROWS_MAX]], kept=("table", "lag", "state")
        )
        if paths
        else None,
        total=len(paths),
        noun="table",
        last=_last_text(paths, found),
        calls=['lab.create_table("db.table", …)'] if not paths else ["lab.status()"],
    )


def _look(
    connection: Connection, paths: Sequence[TablePath], described: pb.DescribeClusterResponse
) -> list[TableFacts | str]:
    """Return the facts of each table, as many as there is time for; of others, why not."""
    states = states_by_path(described)
    deadline_s = time.monotonic() + _LOOK_S
    found: list[TableFacts | str] = []
    # Those whose last round failed are asked whatever the time: the coordinator names them.
    failing = {path for path, state in states.items() if state.last_error}
    for path in paths:
        if time.monotonic() > deadline_s and str(path) not in failing:
            found.append(_NOT_ASKED)
            continue
        try:
            found.append(table_facts(connection, path, states.get(str(path))))
        except TableNotFoundError:
            found.append(f"{FAILED} dropped just now")
        except Exception as error:  # what is shown must not fail
            found.append(f"{FAILED} {short(error, 80)}")
    return found


def _order(paths: Sequence[TablePath], found: Sequence[TableFacts | str]) -> list[tuple[TablePath, TableFacts | str]]:
    def rank(each: tuple[TablePath, TableFacts | str]) -> tuple[int, int, str]:
        path, facts = each
        if isinstance(facts, str):
            return (4 if facts == _NOT_ASKED else 0, 0, str(path))
        return facts.rank, -(facts.lag.records if facts.lag is not None else 0), str(path)

    return sorted(zip(paths, found, strict=True), key=rank)


def _row(path: TablePath, facts: TableFacts | str) -> list[object]:
    if isinstance(facts, str):
        return [str(path), None, None, None, facts]
    lag = None if facts.lag is None else facts.lag.records
    return [str(path), facts.kind, facts.records, lag, facts.state]


def _servers_text(described: pb.DescribeClusterResponse, away: Sequence[pb.PbTabletServerStatus]) -> str:
    total = len(described.tablet_server_status)
    return f"{total - len(away):,} of {total:,} running"


def _lake_text(known: Sequence[TableFacts]) -> str | None:
    words = [each.state.partition(" ")[2] for each in known if each.lag is not None]
    if not words:
        return None
    others = [f"{words.count(word)} {word}" for word in ("behind", "failed", "not known") if word in words]
    return ", ".join([f"{plural(words.count('within freshness'), 'table')} within freshness", *others])


def _last_text(paths: Sequence[TablePath], found: Sequence[TableFacts | str]) -> str:
    if not paths:
        return "This lab has no tables."
    skipped = sum(each == _NOT_ASKED for each in found)
    first = "Those that need attention first." if len(paths) > CARD_ROWS_MAX else ""
    return " ".join(filter(None, [first, f"{skipped:,} not asked, to answer at once." if skipped else ""]))
