"""Formats of files: one that a newer version wrote is refused, and never read as if it were known."""

from __future__ import annotations

from fluss_lab.errors import UnsupportedError


def newer_text(what: object, found: object, known: int) -> str:
    """Return what is said of something in a format that this version does not know."""
    return (
        f"{what}: written by a newer version of fluss_lab (format {found}, this one reads up to {known}); use that version, or "
        "restore what it was made from"
    )


def check_format(what: object, found: object, known: int) -> None:
    """Raise `UnsupportedError` if a format's number is above the one known. One without a number is of before there were any."""
    if isinstance(found, int) and found > known:
        raise UnsupportedError(newer_text(what, found, known))
