"""The ``LOOKUP`` hints of a SELECT, with Flink's option names: what they ask for, and what of them is ignored with a warning."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from fluss_lab.errors import FlussError, InvalidPropertyError
from fluss_lab.lookup.lookup_options import MODES, UPDATE_STRATEGY
from fluss_lab.model.times import parse_duration

#: Values of `UPDATE_STRATEGY`, of a hint or of the session.
IGNORE, TRY_RESOLVE = "ignore", "try_resolve"
#: Flink's options for rows that are not there yet: all four or none.
_RETRY: Final = ("retry-predicate", "retry-strategy", "fixed-delay", "max-attempts")
_SHOWN_MAX: Final = 80

#: Cheap to look for: a text without any of it has no lookup join.
_SIGNS: Final = re.compile(r"\bLOOKUP\b|\bPROCTIME\b|\bAS\s+OF\s+[\w`]+\s*\.", re.IGNORECASE)
_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<text>'(?:[^'\\]|''|\\.)*'|"(?:[^"\\]|""|\\.)*")
    | (?P<word>`(?:[^`]|``)+`|[\w.-]+)
    | (?P<symbol>[(),=])
    | (?P<other>\S)
    )""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class HintBlock:
    """One ``/*+ ... */``.

    Attributes:
        rest: What stays of it for Spark: without its LOOKUP hints; empty: nothing.
        lookups: The options of each LOOKUP hint, in the order written; None: cannot be read.
        texts: Each of these hints as it is written.
    """

    rest: str
    lookups: tuple[tuple[tuple[str, str], ...] | None, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LookupHint:
    """What hints ask for of the lookups in one table.

    Attributes:
        shuffle: Distribute the stream as the table's source wants it, else by the join keys.
        tasks: Among how many tasks; None: not asked.
        mode: One of `MODES`; None: not asked.
        updates: `IGNORE` or `TRY_RESOLVE`; None: not asked.
        options: Options of the source (``lookup.cache.max-rows``), as text.
    """

    shuffle: bool = False
    tasks: int | None = None
    mode: str | None = None
    updates: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


def may_look_up(text: str) -> bool:
    """Return whether a statement may have lookup joins, or hints of them: False is certain, and known without a parser."""
    return _SIGNS.search(text) is not None


# -- the text ---------------------------------------------------------------------------------------------------------


def parse_block(text: str) -> HintBlock:
    """Return what stands in ``/*+ text */``; hints of other names stay as they are written."""
    kept: list[str] = []
    lookups: list[tuple[tuple[str, str], ...] | None] = []
    texts: list[str] = []
    for name, start, stop, inside in _calls(text):
        if name.upper() != "LOOKUP":
            kept.append(text[start:stop])
            continue
        lookups.append(None if inside is None else _pairs(inside))
        texts.append(text[start:stop])
    return HintBlock(f"/*+ {', '.join(kept)} */" if kept else "", tuple(lookups), tuple(texts))


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int
    stop: int


def _tokens(text: str) -> list[_Token]:
    found = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        assert kind is not None
        found.append(_Token(kind, match[kind], match.start(kind), match.end()))
    return found


def _calls(text: str) -> Iterator[tuple[str, int, int, list[_Token] | None]]:
    """Yield each hint: its name, where it stands, and what is in its parentheses; None: they are not closed, or there are none."""
    tokens, at = _tokens(text), 0
    while at < len(tokens):
        first = tokens[at]
        at += 1
        if first.text == ",":
            continue
        if at == len(tokens) or tokens[at].text != "(":
            yield first.text, first.start, first.stop, None
            continue
        begin, level = at + 1, 0
        while at < len(tokens):
            level += {"(": 1, ")": -1}.get(tokens[at].text, 0) if tokens[at].kind == "symbol" else 0
            at += 1
            if not level:
                break
        closed = level == 0
        yield first.text, first.start, tokens[at - 1].stop, tokens[begin : at - 1] if closed else None


def _pairs(tokens: Sequence[_Token]) -> tuple[tuple[str, str], ...] | None:
    """Return ``'name' = 'value', ...``; None: it is something else."""
    if len(tokens) % 4 != 3:
        return None
    for place, token in enumerate(tokens):
        expected = {1: "=", 3: ","}.get(place % 4)
        if (token.kind not in {"text", "word"}) if expected is None else token.text != expected:
            return None
    return tuple((_plain(tokens[at]), _plain(tokens[at + 2])) for at in range(0, len(tokens), 4))


def _plain(token: _Token) -> str:
    quote = token.text[0]
    if quote in "'\"`":
        return token.text[1:-1].replace(quote * 2, quote)
    return token.text


# -- the options ------------------------------------------------------------------------------------------------------


def _one_of(*words: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value.lower() not in words:
            raise InvalidPropertyError(f"expected {' or '.join(words)}")
        return value.lower()

    return check


def _whole_number(value: str) -> str:
    if not re.fullmatch(r"[0-9]{1,9}", value) or int(value) < 1:
        raise InvalidPropertyError("expected a whole number of at least 1")
    return value


def _duration(value: str) -> str:
    try:
        amount_ms = parse_duration(value.strip())
    except FlussError:
        amount_ms = 0
    if amount_ms < 1:
        raise InvalidPropertyError("expected a duration above 0, such as 10s")
    return value


#: Flink's options, and ours that are no option of the source.
_CHECKS: Final[Mapping[str, Callable[[str], str]]] = {
    "table": str,
    "shuffle": _one_of("true", "false"),
    "async": _one_of("true", "false"),
    "output-mode": _one_of("ordered", "allow_unordered"),
    "capacity": _whole_number,
    "timeout": _duration,
    "retry-predicate": _one_of("lookup_miss"),
    "retry-strategy": _one_of("fixed_delay"),
    "fixed-delay": _duration,
    "max-attempts": _whole_number,
    "mode": _one_of(*MODES),
    "tasks": _whole_number,
    UPDATE_STRATEGY: _one_of(IGNORE, TRY_RESOLVE),
}


def read_hints(
    blocks: Iterable[HintBlock], tables: Mapping[str, int], source_options: Mapping[str, Callable[[str], object]]
) -> tuple[dict[int, LookupHint], list[str]]:
    """Return what the hints of one SELECT ask for, and what of them is ignored and why. A hint is never an error.

    Hints of one table are taken together; of an option given twice the last counts, as in Flink.

    Args:
        blocks: In the order written.
        tables: The names by which the SELECT's lookup joins are known, in lower case: alias, name, path.
        source_options: By name, what checks an option of the source: it raises a `FlussError` for a value that cannot be.

    Returns:
        By the number in `tables`; and one text for each thing ignored.
    """
    merged: dict[int, dict[str, str]] = {}
    warnings: list[str] = []
    checks = {**_CHECKS, **source_options}
    for block in blocks:
        for pairs, written in zip(block.lookups, block.texts, strict=True):
            shown = written if len(written) <= _SHOWN_MAX else f"{written[:_SHOWN_MAX]}..."
            what = f"the hint {shown} is ignored"
            if pairs is None:
                warnings.append(f"{what}: expected LOOKUP('table'='name', 'option'='value', ...)")
                continue
            given = {name.lower(): value for name, value in pairs}
            table = given.get("table")
            if table is None:
                warnings.append(f"{what}: it names no 'table'")
                continue
            number = tables.get(table.lower())
            if number is None:
                known = (
                    f"expected one of {', '.join(sorted(tables))}" if tables else "there is no lookup join beside it"
                )
                warnings.append(
                    f"{what}: {table!r} is not joined in this SELECT FOR SYSTEM_TIME AS OF PROCTIME() under that name; {known}"
                )
                continue
            merged.setdefault(number, {}).update(_check_options(given, checks, table, warnings))
    return {number: _hint(given, source_options, warnings) for number, given in merged.items()}, warnings


def _check_options(
    given: Mapping[str, str], checks: Mapping[str, Callable[[str], object]], table: str, warnings: list[str]
) -> dict[str, str]:
    """Return the options that are known and have a value that can be."""
    kept = {}
    for name, value in given.items():
        what = f"LOOKUP hint of {table}: {name!r}={value!r} is ignored"
        if name not in checks:
            warnings.append(f"{what}: no such option; those known are {', '.join(checks)}")
            continue
        try:
            checks[name](value)
        except FlussError as error:
            warnings.append(f"{what}: {error}")
            continue
        kept[name] = value
    return kept


def _hint(given: Mapping[str, str], source_options: Iterable[str], warnings: list[str]) -> LookupHint:
    retry = [name for name in _RETRY if name in given]
    if retry and len(retry) < len(_RETRY):
        missing = ", ".join(name for name in _RETRY if name not in given)
        warnings.append(
            f"LOOKUP hint of {given['table']}: {', '.join(retry)} without {missing} is ignored: all four or none"
        )
    return LookupHint(
        shuffle=given.get("shuffle", "false").lower() == "true",
        tasks=int(given["tasks"]) if "tasks" in given else None,
        mode=given["mode"].lower() if "mode" in given else None,
        updates=given[UPDATE_STRATEGY].lower() if UPDATE_STRATEGY in given else None,
        options={name: given[name] for name in source_options if name in given},
    )
