"""Values as people read them: control characters visible, long texts cut, numbers in groups, ages in one unit."""

from __future__ import annotations

from typing import Final

#: Longer texts are cut where they are shown; programs get them whole.
CELL_LENGTH_MAX: Final = 60
#: What is shown of nothing.
NOTHING: Final = "–"


def visible(text: str) -> str:
    r"""Return a text with whatever has no shape of its own escaped: control, zero-width and bidirectional characters.

    >>> visible("a\tb\u202e")
    'a\\tb\\u202e'
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "backslashreplace").decode() for each in text
    )


def short(text: object, length_max: int = CELL_LENGTH_MAX, *, middle: bool = False) -> str:
    """Return a text visible and cut to a length: paths in the middle, so that both ends stay, other texts at the end.

    >>> short("file:/warehouse/nyc/flights/data/part-00001.parquet", 26)
    'file:/…/part-00001.parquet'
    >>> short("what went wrong, and why", 10)
    'what went…'

    Args:
        text: Any; by `str`.
        length_max: At most so many characters.
        middle: Whether to cut it in the middle whatever it is.

    Cost: that of what is shown, however long the text is.
    """
    if not isinstance(text, str):
        text = str(text)
    if len(text) <= length_max:
        text = visible(text)
        if len(text) <= length_max:
            return text
    if middle or is_path(text):
        # The end of a path says more than its begin.
        left = (length_max - 1) // (2 if middle else 4)
        right = length_max - 1 - left
        return f"{visible(text[:left])[:left]}…{visible(text[-right:])[-right:]}"
    return visible(text[:length_max])[: length_max - 1].rstrip() + "…"


def is_path(text: str) -> bool:
    """Return whether a text is a path or the like: its end says as much as its begin."""
    return "/" in text[:200] and " " not in text[:200]


def display_text(value: object, *, grouped: bool = True) -> str:
    """Return a value as people read it: nothing as a dash, whole numbers in groups, everything else by `str`.

    Args:
        value: Any.
        grouped: Whether digits are grouped; identifiers are not.
    """
    if value is None:
        return NOTHING
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if grouped else str(value)
    return value if isinstance(value, str) else str(value)


def plural(count: int, noun: str) -> str:
    """Return a count and its noun.

    >>> plural(1, "bucket"), plural(1200, "bucket"), plural(2, "entry")
    ('1 bucket', '1,200 buckets', '2 entries')
    """
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("y") else f"{count:,} {noun}s"


def ago(ms: int) -> str:
    """Return a time in one unit: ``320 ms``, ``4.2 s``, ``3.5 min``, ``2.1 h``, ``6.0 d``."""
    if ms < 1_000:
        return f"{max(0, ms)} ms"
    for limit, unit, word in (
        (60_000, 1_000, "s"),
        (3_600_000, 60_000, "min"),
        (86_400_000, 3_600_000, "h"),
    ):
        if ms < limit:
            return f"{ms / unit:.1f} {word}"
    return f"{ms / 86_400_000:.1f} d"
