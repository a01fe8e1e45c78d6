"""Columns of Spark's frames: names as SQL takes them, and columns made in few calls of the JVM.

A call is a round trip of 0.1 ms and more, the lookup of a function's name is another one, and pyspark's own functions take
a dozen a column.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Where a context's are kept.
_KEPT: Final = "_fluss_lab_jvm_columns"


def quote(name: str) -> str:
    """Return a name as SQL takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


class JvmColumns:
    """What the JVM makes columns with, looked up once a context. A column here is the JVM's own object. Used by any thread.

    Args:
        jvm: Of the context.
    """

    def __init__(self, jvm: Any) -> None:
        functions = jvm.org.apache.spark.sql.functions
        self._get, self._getbit, self._lit = functions.get, functions.getbit, functions.lit
        self._shift_right, self._coalesce = functions.shiftright, functions.coalesce
        self._sequence = jvm.org.apache.spark.api.python.PythonUtils.toSeq
        self._no_metadata = jvm.org.apache.spark.sql.types.Metadata.empty()

    def column(self, frame: DataFrame, name: str) -> Any:
        """Return a frame's column."""
        return frame._jdf.col(quote(name))

    def rename(self, column: Any, name: str) -> Any:
        """Return a column under a name, without metadata."""
        return getattr(column, "as")(name, self._no_metadata)

    def keep_whole(self, column: Any) -> Any:
        """Return a column of which Spark reads all of its fields or none.

        Of a column of which a query has some fields only Spark's scans forget the metadata, and with it the id that the
        column is found by in Parquet files: under a name that no file has, all would be null.
        """
        return self._coalesce(self._sequence([column, column]))

    def select(self, frame: DataFrame, columns: Iterable[Any]) -> DataFrame:
        """Return some columns of a frame."""
        return _frame(frame._jdf.select(self._sequence(list(columns))), frame.sparkSession)

    def where(self, frame: DataFrame, condition: Any) -> DataFrame:
        """Return the rows of a frame for which a column is true."""
        return _frame(frame._jdf.filter(condition), frame.sparkSession)

    def is_no_bit(self, bits: Any, head: Any, number: Any) -> Any:
        """Return whether the bit that stands for a number is not set.

        Args:
            bits: Words of 64 bits. That at the place `head` is what, added to a number's 64th part, gives its word's place.
            head: May be null, as the number: then it is true.
            number: For which no word stands: then it is true.
        """
        word = self._get(bits, head).plus(self._shift_right(number, 6)).cast("int")
        bit = number.bitwiseAND(self._lit(63)).cast("int")
        unset = self._lit(0).cast("tinyint")
        return self._coalesce(self._sequence([self._getbit(self._get(bits, word), bit), unset])).equalTo(unset)


def jvm_columns(session: SparkSession) -> JvmColumns:
    """Return what a session's columns are made with."""
    context = session.sparkContext
    found: JvmColumns | None = getattr(context, _KEPT, None)
    if found is None:
        found = JvmColumns(context._jvm)
        setattr(context, _KEPT, found)
    return found


def _frame(jvm_frame: Any, session: SparkSession) -> DataFrame:
    from pyspark.sql import DataFrame

    return DataFrame(jvm_frame, session)
