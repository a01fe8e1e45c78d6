"""Names as Spark's SQL takes them, and the name of the data source."""

from typing import Final

#: The name under which the data source is registered.
FORMAT: Final = "fluss"


def quoted(name: str) -> str:
    """Return a name as SQL takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"
