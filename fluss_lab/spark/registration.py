"""The registration of the data source ``fluss`` with a session."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

    from fluss_lab.client import Connection

#: Where a session's object keeps the labs that have used it: by connection, the option's value by which a query names each.
_LABS: Final = "_fluss_labs"
#: Where a session keeps which cluster is its own: a digest, for the options may hold a token.
_REGISTERED: Final = "spark.fluss_lab.cluster"


def register(session: SparkSession, defaults: Mapping[str, str] | None = None) -> None:
    """Make ``spark.read.format("fluss")`` and its like known to a session; `Lab.spark` has done so.

    Args:
        defaults: Options of the cluster that is meant when a query names none, such as ``{"lab": "/data/lab"}``; None:
            queries must name one.

    Cost: some 10 ms; a call of the JVM when it has been done already.
    """
    known = hashlib.sha256(json.dumps(dict(defaults or {}), sort_keys=True).encode()).hexdigest()
    if session.conf.get(_REGISTERED, None) == known:
        return
    # Here, for processes that plan a read import what is around this module.
    from fluss_lab.spark.data_source import source_type
    from fluss_lab.spark.session.spark_session import FIELD_IDS, as_active
    from fluss_lab.spark.source.spark_types import allow_time

    with as_active(session):  # Spark compares with the sources of the active session, which has one of that name
        _register_source(session, source_type(defaults or {}))
    allow_time(session)
    for key, value in FIELD_IDS.items():
        session.conf.set(key, value)  # without it columns that are named by their ids alone would be null
    session.conf.set(_REGISTERED, known)


def register_lab(session: SparkSession, connection: Connection, place: Mapping[str, str]) -> None:
    """Have the data source mean a lab's tables. Where several open labs have used the session, a query must name the lab.

    A process has one Spark, and a session one meaning of ``format("fluss")``: with that of the lab that came last, rows would be
    written into another lab than the one that they are meant for.

    Args:
        connection: The lab's; the lab is open as long as this is.
        place: Options that name its cluster, and client options.

    Raises:
        ConnectionClosedError: The lab was closed.
        UnavailableError: The session's JVM ended, or it was stopped.
    """
    connection.check_open("Spark is given no tables")
    from fluss_lab.spark.session.spark_errors import spark_loss
    from fluss_lab.spark.source.source_options import SEVERAL

    labs: WeakKeyDictionary[Connection, str] = vars(session).setdefault(_LABS, WeakKeyDictionary())
    labs[connection] = _name(place)
    others = {name for each, name in list(labs.items()) if not each.closed.is_set()} - {_name(place), ""}
    with spark_loss(session, "the session"):
        register(session, {SEVERAL: ", ".join(sorted({_name(place), *others}))} if others else place)


def _name(place: Mapping[str, str]) -> str:
    return place.get("lab") or place.get("server") or ""


def ensure_registered(session: SparkSession) -> None:
    """Make the data source known to a session that does not know it yet; one that has a cluster of its own keeps it."""
    if session.conf.get(_REGISTERED, None) is None:
        register(session)


def _register_source(session: SparkSession, source: type[DataSource]) -> None:
    """Do what ``session.dataSource.register`` does, with an environment that may change while tasks are serialized.

    All tasks of a source carry the one map of environment variables that it was registered with, and Spark 4.3 adds to that
    map whenever a stream of the source starts. A plain hash map that is serialized meanwhile cannot be read again
    (``OptionalDataException``), which ended other streams of the session.
    """
    from pyspark.sql.udf import _wrap_function

    context = session.sparkContext
    jvm = context._jvm
    assert jvm is not None
    made = _wrap_function(context, source)
    function = jvm.SimplePythonFunction(
        made.command(),
        jvm.java.util.concurrent.ConcurrentHashMap(made.envVars()),
        made.pythonIncludes(),
        made.pythonExec(),
        made.pythonVer(),
        made.broadcastVars(),
        made.accumulator(),
    )
    python = jvm.org.apache.spark.sql.execution.datasources.v2.python
    session._jsparkSession.dataSource().registerPython(source.name(), python.UserDefinedPythonDataSource(function))
