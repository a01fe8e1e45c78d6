"""The public conformance suites: what every lake format (`fluss_lab.lake`) must do, as tests.

That of lookup sources is `fluss_lab.testing.conformance.lookups`.

Who writes a format derives one class and runs it under pytest (``pip install pytest``); the format must be installed, so
that its entry point is found::

    class TestMyFormat(LakeConformance):
        format_name = "mine"

        def properties(self, folder):
            return {"warehouse": str(folder)}

        def read_state(self, storage, table):  # the live rows of a primary-key table, read by whatever reads the format
            return my_reader(storage, table)

`LakeConformance` is everything. Its parts may be run alone while a format grows: `CatalogConformance`,
`SerializerConformance`, `CommitConformance`, `LogTableConformance`, `LogSourceConformance`, `KeyedWriterConformance`,
`KeyedLogConformance`, `KillConformance` and `RoundConformance` (whole tiering rounds on a cluster in the process). All derive from `LakeFormat`,
which has what an author may say of a format. Tests marked ``campaign`` do the same at length.

Call ``pytest.register_assert_rewrite("fluss_lab.testing.conformance")`` before the import, and failures show their values.
Random tests print their seed; `fluss_lab.testing.seeds` says which it is.
"""

from fluss_lab.testing.conformance.catalogs import CatalogConformance
from fluss_lab.testing.conformance.commits import CommitConformance, KillConformance
from fluss_lab.testing.conformance.keyed.keyed_history import KeyedHistory
from fluss_lab.testing.conformance.keyed.keyed_logs import KeyedLogConformance
from fluss_lab.testing.conformance.keyed.keyed_writers import KeyedWriterConformance
from fluss_lab.testing.conformance.kit import LakeFormat, LakeKit
from fluss_lab.testing.conformance.log_tables import LogSourceConformance, LogTableConformance
from fluss_lab.testing.conformance.rounds import RoundConformance
from fluss_lab.testing.conformance.serializers import SerializerConformance
from fluss_lab.testing.conformance.suite import LakeConformance

__all__ = [
    "CatalogConformance",
    "CommitConformance",
    "KeyedHistory",
    "KeyedLogConformance",
    "KeyedWriterConformance",
    "KillConformance",
    "LakeConformance",
    "LakeFormat",
    "LakeKit",
    "LogSourceConformance",
    "LogTableConformance",
    "RoundConformance",
    "SerializerConformance",
]
