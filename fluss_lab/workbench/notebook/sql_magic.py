"""The magic ``%%fluss_sql``: Spark SQL over a lab's tables in a cell, its result a pandas frame."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fluss_lab.errors import InvalidRequestError
from fluss_lab.model.values.pandas_frames import to_pandas

#: Rows fetched of a result that is only shown: pandas shows fewer.
SHOWN_ROWS: Final = 1_000
_OPTION: Final = re.compile(r"\s*--(?P<name>[a-z][a-z-]*)(?:[= ]+(?P<value>\"[^\"]*\"|'[^']*'|[^\s-]\S*))?(?=\s|$)")
_COMMENT: Final = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_USAGE: Final = "%%fluss_sql [--into NAME] [--lab NAME] [--as-of TIME] [--limit ROWS|all]"


@dataclass(frozen=True, slots=True)
class SqlCell:
    """A statement and its options.

    Attributes:
        text: The statement.
        into: The variable that keeps the result.
        lab: The variable that holds the lab.
        as_of: When the tables are read: a time as text, or a lake snapshot's id.
        limit: At most so many rows are fetched; None: all.
    """

    text: str
    into: str | None
    lab: str | None
    as_of: str | int | None
    limit: int | None

    @staticmethod
    def parse(line: str, cell: str | None) -> SqlCell:
        """Return the statement of a cell, or of the line alone, and the options before it.

        Raises:
            InvalidRequestError: An unknown option, a value that cannot be, or no statement.
        """
        given: dict[str, str] = {}
        while (option := _OPTION.match(line)) is not None:
            name, value = option["name"], option["value"]
            if name not in {"into", "lab", "as-of", "limit"}:
                raise InvalidRequestError(f"fluss_sql: unknown option --{name}; expected {_USAGE}")
            if not value:
                raise InvalidRequestError(f"fluss_sql: --{name} has no value; expected {_USAGE}")
            given[name] = value.strip("\"'")
            line = line[option.end() :]
        text = line.strip() if cell is None else f"{line.strip()}\n{cell}".strip()
        if not _COMMENT.sub("", text).strip(" \t\r\n;"):
            raise InvalidRequestError(f"fluss_sql: expected a SQL statement below the line {_USAGE}")
        for name in ("into", "lab"):
            if name in given and (not given[name].isidentifier() or keyword.iskeyword(given[name])):
                raise InvalidRequestError(
                    f"fluss_sql: --{name}: expected the name of a variable, found {given[name]!r}"
                )
        as_of = given.get("as-of")
        moment = int(as_of) if as_of is not None and as_of.isdecimal() else as_of
        limit = _limit(given.get("limit"), None if "into" in given else SHOWN_ROWS)
        return SqlCell(text, given.get("into"), given.get("lab"), moment, limit)


def _limit(text: str | None, default: int | None) -> int | None:
    if text is None or text == "all":
        return default if text is None else None
    if not text.isdecimal() or not 0 < int(text) < 2**31:
        raise InvalidRequestError(f"fluss_sql: --limit: expected a whole number of at least 1, or all, found {text!r}")
    return int(text)


def chosen_lab(names: Mapping[str, Any], name: str | None) -> Any:
    """Return the lab that a variable of the notebook holds: the one named, or the only one that is open.

    Raises:
        InvalidRequestError: There is none, or there are several.
    """
    from fluss_lab.workbench.lab import Lab

    # IPython's own names of earlier results begin so.
    labs = {key: value for key, value in names.items() if isinstance(value, Lab) and not key.startswith("_")}
    still_open = {key: lab for key, lab in labs.items() if not lab.connection.closed.is_set()}
    if name is not None:
        if name not in labs:
            found = f"the labs here are {', '.join(labs)}" if labs else "no variable here holds a lab"
            raise InvalidRequestError(f"fluss_sql: --lab {name}: it is no lab; {found}")
        return labs[name]
    if not still_open:
        closed = f" (closed: {', '.join(labs)})" if labs else ""
        raise InvalidRequestError(f'fluss_sql: no lab is open here{closed}: lab = fluss_lab.Lab.open("lab")')
    if len({id(lab) for lab in still_open.values()}) > 1:
        listed = ", ".join(still_open)
        raise InvalidRequestError(
            f"fluss_sql: several labs are open here ({listed}): say which, as --lab {next(iter(labs))}"
        )
    return next(iter(still_open.values()))


def run_cell(line: str, cell: str | None, names: dict[str, Any]) -> Any:
    """Run a statement; return its result as a pandas frame, None when it has none.

    Args:
        line: Of the magic.
        cell: Below it; None: the statement is in the line.
        names: The notebook's variables.
    """
    asked = SqlCell.parse(line, cell)
    lab = chosen_lab(names, asked.lab)
    if asked.into is not None and names.get(asked.into) is lab:
        raise InvalidRequestError(f"fluss_sql: --into {asked.into} would replace the lab: choose another name")
    from fluss_lab.spark.session.spark_errors import folded_errors, spark_loss

    session = lab.spark  # what it raises is no error of a statement
    with spark_loss(session, "fluss_sql"), folded_errors():
        frame = lab.sql(asked.text, as_of=asked.as_of, session=session)
        if not frame.columns:
            return None
        rows = (frame if asked.limit is None else frame.limit(asked.limit + 1)).toArrow()
    if asked.limit is not None and rows.num_rows > asked.limit:
        rows = rows.slice(0, asked.limit)
        print(f"The first {asked.limit:,} rows; there are more: --limit all has every one.")
    made = to_pandas(rows)
    if asked.into is not None:
        names[asked.into] = made
    return made


def load_ipython_extension(shell: Any) -> None:
    """Add ``%%fluss_sql`` and ``%fluss_sql`` to an IPython; ``%load_ext fluss_lab`` calls it."""
    from IPython.core.magic import no_var_expand

    @no_var_expand
    def fluss_sql(line: str, cell: str | None = None) -> Any:
        """Run Spark SQL over the tables of the open lab, and show the result as a pandas frame.

        ``%%fluss_sql [--into NAME] [--lab NAME] [--as-of TIME] [--limit ROWS|all]``, the statement below it; or
        ``%fluss_sql select ...`` in one line. Every table of the lab is known by its path, as ``nyc.flights``.

        --into NAME     keep the result in a variable: all of it, unless --limit says less
        --lab NAME      the variable that holds the lab, where several are open
        --as-of TIME    read every table as it was at a time ("2013-01-01T12:00:00Z", yesterday), or in a lake snapshot
        --limit ROWS    fetch at most so many rows, all: every one (1,000 of a result that is not kept)
        """
        return run_cell(line, cell, shell.user_ns)

    shell.register_magic_function(fluss_sql, magic_kind="line_cell")
