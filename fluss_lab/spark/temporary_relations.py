"""Frames that stand in a SQL statement as relations whose columns have the qualifiers that the statement knows them by.

A frame is a temporary view of a private name; or its plan is what a function of the session returns, one with a private name
that the statement calls in FROM: unlike a view, it gives its columns no new qualifier. Both go when the statement has been
analysed, unless it keeps its text.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_VIEW: Final = "__fluss_lab_"
_FUNCTION: Final = "__fluss_lab_join_"


class NamedRelations:
    """Frames that statements of a session know by names; forgotten at the end.

    Args:
        session: The session.
        made: The view in whose text the names will stand, if the statement makes one.
    """

    def __init__(self, session: SparkSession, made: str | None = None) -> None:
        self._session = session
        self._suffix = "" if made is None else f"_{hashlib.sha256(made.encode()).hexdigest()[:16]}"
        self._names: list[str] = []
        self._views: list[str] = []

    def __enter__(self) -> NamedRelations:
        return self

    def __exit__(self, *error: object) -> None:
        for name in self._names:
            self._session._jsparkSession.sessionState().catalog().dropTempFunction(name, True)
        for view in self._views:
            self._session.catalog.dropTempView(view)

    def add(self, frame: DataFrame) -> str:
        """Return the name by which ``FROM name()`` is a frame now."""
        name = f"{_FUNCTION}{uuid.uuid4().hex}{self._suffix}"
        jvm: Any = self._session._jvm
        # A map with a default is a function that returns it, whatever it is called with.
        functions = getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
        registry = self._functions()
        registry.createOrReplaceTempFunction(name, functions.withDefaultValue(analysed_plan(frame)), "scala_udf")
        self._names.append(name)
        return name

    def add_view(self, frame: DataFrame) -> str:
        """Return the name of a temporary view that is a frame now."""
        name = f"{_VIEW}{uuid.uuid4().hex}{self._suffix}"
        frame.createOrReplaceTempView(name)
        self._views.append(name)
        return name

    def keep(self, text: str) -> None:
        """Have them stay as long as the session, or until another statement makes the view anew that they stand in.

        Args:
            text: The statement, with their names in it.
        """
        if self._suffix:
            # What that view was before is no more, and nothing else has the names of these.
            catalog = self._session._jsparkSession.sessionState().catalog()
            views = [str(each.table()) for each in each_of(catalog.listLocalTempViews(f"{_VIEW}*{self._suffix}"))]
            for view in views:
                if view not in text:
                    self._session.catalog.dropTempView(view)
            names = [str(each.funcName()) for each in each_of(self._functions().listFunction())]
            for name in names:
                if name.startswith(_FUNCTION) and name.endswith(self._suffix) and name not in text:
                    catalog.dropTempFunction(name, True)
        self._names.clear()
        self._views.clear()

    def _functions(self) -> Any:
        return self._session._jsparkSession.sessionState().tableFunctionRegistry()


def analysed_plan(frame: DataFrame) -> Any:
    """Return a frame's plan, a Java object."""
    return frame._jdf.queryExecution().analyzed()


def attributes(frame: DataFrame) -> list[Any]:
    """Return a frame's columns as its plan has them, Java objects."""
    return list(each_of(analysed_plan(frame).output()))


def each_of(sequence: Any) -> Iterator[Any]:
    """Yield the elements of a Scala sequence."""
    for index in range(sequence.size()):
        yield sequence.apply(index)


def qualify(frame: DataFrame, qualifiers: Sequence[tuple[str, ...]]) -> DataFrame:
    """Return a frame whose columns have these names before their own."""
    session = frame.sparkSession
    jvm: Any = session._jvm
    sequence = jvm.org.apache.spark.api.python.PythonUtils.toSeq
    columns = [
        attribute.withQualifier(sequence(list(qualifier)))
        for attribute, qualifier in zip(attributes(frame), qualifiers, strict=True)
    ]
    plan = jvm.org.apache.spark.sql.catalyst.plans.logical.Project(sequence(columns), analysed_plan(frame))
    return frame_of(session, plan)


def frame_of(session: SparkSession, plan: Any) -> DataFrame:
    """Return a plan as a frame."""
    from pyspark.sql import DataFrame

    jvm: Any = session._jvm
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan), session)
