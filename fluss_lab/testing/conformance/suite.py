"""The conformance suite as one class."""

from __future__ import annotations

from fluss_lab.testing.conformance.catalogs import CatalogConformance
from fluss_lab.testing.conformance.commits import CommitConformance, KillConformance
from fluss_lab.testing.conformance.keyed.keyed_logs import KeyedLogConformance
from fluss_lab.testing.conformance.keyed.keyed_sources import KeyedSourceConformance
from fluss_lab.testing.conformance.keyed.keyed_writers import KeyedWriterConformance
from fluss_lab.testing.conformance.log_tables import LogSourceConformance, LogTableConformance
from fluss_lab.testing.conformance.rounds import RoundConformance
from fluss_lab.testing.conformance.serializers import SerializerConformance


class LakeConformance(
    CatalogConformance,
    SerializerConformance,
    CommitConformance,
    LogTableConformance,
    LogSourceConformance,
    KeyedWriterConformance,
    KeyedSourceConformance,
    KeyedLogConformance,
    KillConformance,
    RoundConformance,
):
    """Everything that a lake format must do."""
