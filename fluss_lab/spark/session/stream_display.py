"""The display of streaming frames: their columns, as of any frame that is not evaluated to be shown."""

from __future__ import annotations

from functools import wraps
from typing import Any, Final

#: What notebooks and prompts call; with ``spark.sql.repl.eagerEval.enabled``, which sessions have here, each runs a query.
_DISPLAYS: Final = ("__repr__", "_repr_html_")


def show_streams_by_columns() -> None:
    """Have streaming frames show their columns. A query of one has no end, so that pyspark, asked to show it, fails.

    It changes pyspark's own class: whatever is made of a frame of `Table.stream` is shown so too. Twice is fine.
    """
    from pyspark.sql.classic.dataframe import DataFrame

    for name in _DISPLAYS:
        method: Any = getattr(DataFrame, name)
        if not hasattr(method, "__wrapped__"):
            setattr(DataFrame, name, _display(method))


def _display(method: Any) -> Any:
    @wraps(method)
    def display(frame: Any) -> Any:
        if not frame.isStreaming:
            return method(frame)
        # Without HTML a notebook shows the text.
        return None if method.__name__ == "_repr_html_" else f"DataFrame[{', '.join(map(': '.join, frame.dtypes))}]"

    return display
