"""The lab: one cluster, its lake and its Spark behind one object."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Final, Unpack
from weakref import WeakSet

from fluss_lab.client import Connection
from fluss_lab.client.table_listing import lake_tables
from fluss_lab.closing import Closing
from fluss_lab.display import short
from fluss_lab.errors import LakeNotConfiguredError
from fluss_lab.explorer import lab_explorer
from fluss_lab.lake import LakeStorage
from fluss_lab.model import TableDescriptor, TablePath
from fluss_lab.model.argument_checks import check_arguments
from fluss_lab.model.times import Moment, zone_text
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server import cluster
from fluss_lab.tiering.round.round_report import TieringReports
from fluss_lab.tiering.service.tiering_service import RoundOutcome, TieringService
from fluss_lab.tiering.task.round_progress import RoundState
from fluss_lab.workbench import lookup_face
from fluss_lab.workbench.cards.lab_card import lab_html
from fluss_lab.workbench.cards.listing import Listing
from fluss_lab.workbench.lab_place import LabPlace, folder_place, server_place
from fluss_lab.workbench.lab_spark import LabSpark
from fluss_lab.workbench.lab_status import LabStatus
from fluss_lab.workbench.lab_tables import LabTables, NewTable
from fluss_lab.workbench.lake_upkeep import tier_each
from fluss_lab.workbench.table import Table

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable
    from pyspark.sql import DataFrame, SparkSession

    from fluss_lab.jobs import Jobs, Run
    from fluss_lab.lake.iceberg import IcebergLakeStorage
    from fluss_lab.workbench.load import FileOptions, LoadReport

#: How long rounds of its tiering services may go on when a lab is closed.
_DRAIN_TIMEOUT_S: Final = 10.0


@check_arguments
class Lab(Closing):
    """A lab: databases and tables in an embedded cluster, tiered into Iceberg.

    Make one with `Lab.open` or `Lab.connect`; it is a context manager, or `close` it. Several threads may use it.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        folder: Path | None,
        attachment: cluster.Attachment | None,
        place: Mapping[str, str],
    ) -> None:
        self.connection = connection
        self.folder = folder
        self._attachment = attachment
        #: How processes of Spark find the cluster: options of the data source ``fluss``.
        self._place = dict(place)
        self.compute = LabSpark(connection)
        self._tables = LabTables(connection, self.compute.expect)
        self._services: WeakSet[TieringService] = WeakSet()

    @staticmethod
    def open(
        folder: str | Path = "lab",
        *,
        tablet_servers: int | None = None,
        durability: str | None = None,
        config: Mapping[str, object] | None = None,
    ) -> Lab:
        """Attach to the server of a folder, or start one that ends when no process is attached any more.

        Args:
            folder: Where the lab lives: log, metadata, lake warehouse. Made when absent, for its owner only; ``~`` is the home.
            tablet_servers: How many tablet servers a cluster that is started has; more than one are processes of their
                own. None: as many as the lab had last, or one. Never fewer than buckets are assigned to.
            durability: ``"ack"`` (default: kill -9 loses nothing acknowledged) or ``"fsync"`` (power loss neither). As of the
                tablet servers: one that runs already keeps its own, and a warning says so.
            config: Cluster and client options by name, for instance ``{"log.segment.file-size": "64mb"}``. Cluster
                options count when a server is started; one that runs already keeps its own.

        Returns:
            The open lab, after the server has answered (about a second when it must be started).

        Raises:
            LabLockedError, LabMovedError, LabError: The folder cannot be used, or not so; the text says what to do.
            InvalidPropertyError: An option that does not exist, or a value of the wrong type.
            ServerUnavailableError: The server did not come up; the text has the end of its log.
        """
        return Lab._from_place(folder_place(folder, tablet_servers, durability, config))

    @staticmethod
    def connect(
        address: str,
        *,
        token_file: str | Path,
        tls: bool | None = None,
        tls_ca: str | Path | None = None,
        config: Mapping[str, object] | None = None,
    ) -> Lab:
        """Use a server that runs elsewhere, without starting or keeping one alive.

        Args:
            address: ``host:port`` of its coordinator.
            token_file: The file with its token, readable by its owner only.
            tls: Whether the cluster speaks TLS. None: it does, unless the address is of this machine and no certificates
                are given.
            tls_ca: PEM file with the certificates to trust; None: ``client.tls.ca``, else the system's.
            config: Client options.

        Raises:
            AuthenticationError: No token in the file, or not the server's; or a certificate that is not trusted.
            InvalidPropertyError: The file with the certificates cannot be read.
            ServerUnavailableError: No server answers.
        """
        return Lab._from_place(server_place(address, token_file, tls, tls_ca, config))

    @staticmethod
    def _from_place(place: LabPlace) -> Lab:
        return Lab(place.connection, folder=place.folder, attachment=place.attachment, place=place.options)

    def close(self) -> None:
        """Let go, and end what this lab began. Twice is fine.

        Tiering services of this lab are stopped; rounds under way have 10 s to end, then they are cancelled. Writers that
        are still open send what they hold; scanners, lookupers and iterators end. A server that `Lab.open` started ends
        with the last lab attached to it, in whichever process that is: when this returns it is gone, and its folder may be
        moved or deleted. (After a process that ended without closing its lab it waits for ``server.grace``.)

        Raises:
            FlussError: Rows of a writer that was not closed were not acknowledged. The lab is closed all the same.
            RequestTimeoutError: The server has not ended in a minute.
        """
        with ExitStack() as stack:
            if self._attachment is not None:
                stack.callback(self._attachment.leave, self.connection.sessions)
            stack.callback(self.connection.close)
            if not self.connection.closed.is_set():
                stack.callback(self.connection.open_resources.close)
            for service in list(self._services):
                stack.callback(service.stop, _DRAIN_TIMEOUT_S)

    # -- databases and tables ------------------------------------------------------------------------------------------

    def databases(self) -> list[str]:
        """Return the names of the databases, sorted."""
        return self.connection.admin().databases()

    def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        """Create a database.

        Raises:
            InvalidNameError: The name breaks the rule.
            DatabaseExistsError: It exists, and `if_not_exists` is false.
        """
        self.connection.admin().create_database(name, if_not_exists)

    def drop_database(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Drop a database; with `cascade` also its tables and their lake tables.

        Raises:
            DatabaseNotFoundError: There is none, and `if_exists` is false.
            DatabaseNotEmptyError: It has tables, and `cascade` is false.
        """
        self.connection.admin().drop_database(name, cascade=cascade, if_exists=if_exists)

    def tables(self, database: str | None = None) -> list[str]:
        """Return the names of a database's tables, or the paths of all tables of the lab, sorted.

        Args:
            database: Whose; None: of every one, as ``nyc.flights``.

        Raises:
            DatabaseNotFoundError: There is no such database.
        """
        if database is not None:
            return self.connection.admin().tables(database)
        return [str(path) for path in self._tables.paths()]

    def table(self, path: str | TablePath) -> Table:
        """Return a table by its path; ``lab["nyc.flights"]`` is the same.

        Raises:
            TableNotFoundError: There is none; the text names those that there are.
        """
        checked = TablePath.parse(path)
        self._tables.check(checked)
        return Table(self, checked)

    def __getitem__(self, path: str | TablePath) -> Table:
        return self.table(path)

    def __contains__(self, path: object) -> bool:
        return self._tables.has(path)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables())

    def _ipython_key_completions_(self) -> list[str]:
        return self._tables.completions()

    def create_table(
        self,
        path: str | TablePath,
        schema: Any = None,
        *,
        rows: Any = None,
        primary_key: Iterable[str] | None = None,
        partitioned_by: Iterable[str] | None = None,
        buckets: int | None = None,
        bucket_key: Iterable[str] | None = None,
        properties: Mapping[str, object] | None = None,
        comment: str | None = None,
        if_not_exists: bool = False,
    ) -> Table:
        """Create a table, and its lake table when ``table.datalake.enabled``; with `rows`, fill it.

        Args:
            path: ``database.table``; the database exists.
            schema: An Arrow schema, column names to Fluss types (``"bigint"``, ``"decimal(10, 2)"``, ...), or a frame (pandas,
                Arrow) that has the columns. None: that of `rows`.
            rows: The first rows, in any form that `Table.append` takes. They are checked before the table is made, and
                written after it; to a table that was there already (`if_not_exists`) none are.
            primary_key: Key columns, for a primary-key table, the partition columns among them; none for a log table.
            partitioned_by: String columns whose values cut the table into partitions.
            buckets: Buckets of the table, or of each partition; 1 by default.
            bucket_key: Columns that decide a row's bucket. None: rows are spread.
            properties: Table options, ``iceberg.*`` for the lake table, ``custom.*`` notes of your own.
            comment: For people.
            if_not_exists: Return the table that is there instead of raising. Its definition is not compared.

        Raises:
            InvalidError: A kind of it for each thing that can be wrong; nothing was created.
            DatabaseNotFoundError, TableExistsError, LakeTableExistsError: As they say.
            FlussError: The rows could not be written; the table is there, with as many of them as the text says.
        """
        checked = TablePath.parse(path)
        new = NewTable(schema, rows, primary_key, partitioned_by, buckets, bucket_key, properties, comment)
        first = self._tables.create(checked, new, if_not_exists=if_not_exists)
        table = Table(self, checked)
        if first is not None:
            table.upsert(first) if table.descriptor.schema.primary_key else table.append(first)
        return table

    def load(
        self,
        source: Any,
        table: str | TablePath | None = None,
        *,
        primary_key: Sequence[str] | None = None,
        partitioned_by: Sequence[str] | None = None,
        buckets: int | None = None,
        properties: Mapping[str, object] | None = None,
        if_exists: str = "fail",
        columns: Sequence[str] | None = None,
        rename: Mapping[str, str] | Sequence[str] | None = None,
        types: Mapping[str, Any] | None = None,
        **options: Unpack[FileOptions],
    ) -> LoadReport:
        """Make a table of a file or frame, and fill it: the types are those of the values, and the report shows them.

        A file is read twice, in blocks: all of it is examined before the table is made, then its rows are written in their
        order. Memory does not depend on its size: a row has at most 4 MB in CSV, 16 MB in JSON.

        Args:
            source: The path of a CSV, Parquet or JSON file (lines or an array; also compressed), or of a folder of them; a
                pandas or Spark frame, Arrow data, a list of dicts, or whatever has ``__arrow_c_stream__``.
            table: ``database.table``, the database made where it is missing; None: ``default.`` and the file's name.
            primary_key: Key columns; none for a log table.
            partitioned_by: Columns that cut the table into partitions; they become texts.
            buckets, properties: As for `create_table`.
            if_exists: ``"fail"``, or ``"append"``: rows are appended, into a primary-key table upserted.
            columns: Only these, by their names in the table.
            rename: Names in the table by names in the source, or one name for each column of the source.
            types: Fluss types by name in the table, where they are not to be found out.
            options: Of a CSV file ``delimiter``, ``encoding`` and ``null_values`` (default: what is empty and not quoted, where a
                column is of no text also ``NA``, ``NULL`` and their like); ``format`` where a file's name does not say it;
                ``start_row``, for a load that ended on its way.

        Raises:
            TableExistsError: The table is there, and `if_exists` is ``"fail"``.
            NotFoundError, InvalidError: There is no such file, or it cannot be a table: the text names file, column and row.
            WriteInterruptedError: It ended, or was stopped, on its way; the text says which rows were written, and how to go on.
        """
        from fluss_lab.workbench.load import LoadRequest, SourceOptions, TableDefinition, load_table

        definition = TableDefinition(primary_key, partitioned_by, buckets, properties)
        path = None if table is None else TablePath.parse(table)
        read = SourceOptions.of(options)
        return load_table(
            self.connection, LoadRequest(source, path, definition, columns, rename, types, if_exists, read)
        )

    def drop_table(self, path: str | TablePath, *, if_exists: bool = False, lake: bool = True) -> None:
        """Drop a table and its lake table; with ``lake=False`` the lake table stays, named by its table id.

        Raises:
            TableNotFoundError: There is none, and `if_exists` is false.
        """
        self.connection.admin().drop_table(TablePath.parse(path), if_exists=if_exists, lake=lake)

    # -- tiering -------------------------------------------------------------------------------------------------------

    def tier(
        self, *, cancel: Event | None = None, progress: Callable[[RoundState], None] | None = None
    ) -> TieringReports:
        """Run one round of every lake-enabled table, one after another; return their reports.

        Args:
            cancel, progress: As for `Table.tier`; the state says which table it is of.

        Raises:
            TieringCancelledError: A round was cancelled; the tables behind it had no turn.
            FlussError: The first failure, after every table had its turn.
        """
        tables = [Table(self, info.path) for info in lake_tables(self.connection.admin())]
        return tier_each(partial(table.tier, cancel=cancel, progress=progress) for table in tables)

    def tiering_service(
        self, *, max_tables: int = 2, on_round: Callable[[RoundOutcome], None] | None = None
    ) -> TieringService:
        """Return a service that tiers every lake-enabled table by its freshness; `TieringService.start` starts it.

        Args:
            max_tables: Tables tiered at the same time.
            on_round: Called with how each round ended, by any thread.

        Several services may run, in any processes: the coordinator gives each table to one of them. Closing the lab stops
        it; after opening the lab again, ask for another one.
        """
        storage = self.lake_storage()
        executors = self.compute.executors(storage)
        service = TieringService(self.connection, storage, executors, max_tables=max_tables, on_round=on_round)
        self._services.add(service)
        return service

    def lake_storage(self) -> LakeStorage:
        """Return the lake that the cluster is configured with.

        Raises:
            LakeNotConfiguredError: There is none.
        """
        storage = self.connection.lake_storage()
        if storage is None:
            raise LakeNotConfiguredError("the cluster has no lake: set datalake.format and datalake.<format>.* options")
        return storage

    def iceberg(self, path: str | TablePath) -> IcebergTable:
        """Return the pyiceberg table behind a lake-enabled table, as it is now.

        Raises:
            LakeNotConfiguredError: The table is not lake-enabled.
        """
        info = self.connection.table_info(TablePath.parse(path))
        return self.iceberg_storage(info.descriptor, info.path).access.load_table(info.path)

    def iceberg_storage(self, descriptor: TableDescriptor, path: TablePath) -> IcebergLakeStorage:
        """Return the lake as Iceberg, for what is peculiar to it.

        Raises:
            LakeNotConfiguredError: The table is not held in Iceberg.
        """
        from fluss_lab.lake.iceberg import IcebergLakeStorage

        storage = self.lake_storage() if descriptor.lake_enabled else None
        if not isinstance(storage, IcebergLakeStorage):
            raise LakeNotConfiguredError(f"table {path} is not held in Iceberg; set table.datalake.enabled")
        return storage

    @property
    def session_id(self) -> int | None:
        """Return the attached session, by which the coordinator notices when this process ends."""
        return None if self._attachment is None else self._attachment.session_id

    # -- Spark ---------------------------------------------------------------------------------------------------------

    @property
    def spark(self) -> SparkSession:
        """Return the Spark session, made on first use (some 10 s): loopback only, UTC, Arrow on.

        It knows the data source ``fluss``: this lab's tables, unless options name another cluster (of several open labs they must). By it
        ``lab.spark.read.format("fluss").load("nyc.flights")`` reads; ``lab.spark.table`` and ``sql`` know tables by path, as they are now.

        Raises:
            JavaNotFoundError: There is no Java 17 or newer; the text says what to install.
        """
        return self._register(self.compute.session())

    def start_spark(self, master: str | None = None, config: Mapping[str, str] | None = None) -> SparkSession:
        """Start Spark on a master and with settings of your own; `spark` is that session from then on.

        Executors get fluss_lab itself; what it needs (pyarrow, pyiceberg, grpcio, ...) their Python must have. On other
        machines they need the lake's warehouse and ``remote.data.dir`` shared, and a server address with TLS, which the
        first round checks.

        Args:
            master: For instance ``spark://host:7077``; default: ``client.spark.master``, else all cores of this machine.
            config: Spark settings. ``spark.pyspark.python`` is the Python of executors on other machines.

        Raises:
            JavaNotFoundError: There is no Java 17 or newer; the text says what to install.
            UnsupportedError: A session is active that does not fit: stop it first (``lab.spark.stop()``).
        """
        return self._register(self.compute.start(master, config))

    def _register(self, session: SparkSession) -> SparkSession:
        from fluss_lab.spark.registration import register_lab
        from fluss_lab.spark.source.known_tables import know_tables

        register_lab(session, self.connection, self._place)
        know_tables(session, weakref.ref(self))  # the session may outlive the lab
        return session

    def sql(
        self,
        text: str,
        *,
        as_of: Moment | None = None,
        read_points: Mapping[str | TablePath, ReadPoint] | None = None,
        session: SparkSession | None = None,
    ) -> DataFrame:
        """Run Spark SQL in which every table of the lab is known by its path.

        Each table named is read at one moment, taken when this is called: what the frame returned shows never changes.

        Args:
            text: One statement. ``nyc.flights TIMESTAMP AS OF '2013-01-01T12:00:00Z'`` (or ``FOR SYSTEM_TIME AS OF``, ``VERSION
                AS OF`` a lake snapshot) reads that table at a moment of its own.
            as_of: Read every table as it was at this time; see `Table.scan`.
            read_points: By path, read these tables as they were at these points.
            session: Whose views the statement sees: in ``foreachBatch`` ``batch.sparkSession``; None: `spark`.

        Raises:
            InvalidRequestError: There is no statement, or a read point is of a table that it does not name.
            UnsupportedError: It writes to a table of the lab, makes, alters or drops one; the text names how to.
            InvalidTimestampError: `as_of` cannot be read, is before a table was made, or after the servers' clock.
            pyspark.errors.ParseException, pyspark.errors.AnalysisException: As Spark says.
        """
        from fluss_lab.spark.source.lab_sql import check_statement, checked_session, run_statement

        check_statement(text)
        session = self.spark if session is None else self._register(checked_session(session))
        return run_statement(
            lambda path: self.table(path).scan, session, text, as_of, read_points or {},
            has_database=lambda name: name in self.databases(),
        )  # fmt: skip

    lookup_join = lookup_face.lookup_join
    explore = lab_explorer.explore

    @property
    def jobs(self) -> Jobs:
        """Return the lab's jobs: notebooks on a schedule, and the history of runs. Only of a lab opened by its folder."""
        from fluss_lab.jobs.lab_jobs import jobs_of

        return jobs_of(self.folder)

    def run_notebook(self, notebook: str | Path, **parameters: Any) -> Run:
        """Run a notebook now, with parameters, and wait for its end; see `Jobs.run`, which has parameters of any name, secrets, limits."""
        return self.jobs.run(notebook, parameters)

    def status(self) -> LabStatus:
        """Return servers, tables, lag, tiering states, disk and memory, as they are now."""
        described = self.connection.coordinator().describe_cluster(pb.DescribeClusterRequest())
        return LabStatus(self.folder, described, self.connection)

    def doctor(self) -> Listing:
        """Check what machine and lab need: packages, Java, folder, disks, clock, servers, every bucket, tiering. Changes nothing.

        Returns:
            Worst first: ``check``, ``ok``, ``severity`` (``problem``, ``warning``, ``note``, ``ok``), ``found`` with what to do,
            ``command`` that mends it or shows what that comes to, ``error_class``, ``table``. Takes a second or two.
        """
        from fluss_lab.workbench.health.doctor import findings

        return findings(self.folder, self.connection)

    def __repr__(self) -> str:
        where = self.folder if self.folder is not None else self.connection
        return f"<Lab {short(where, 200)}, times in {zone_text(self.connection.time_zone)}>"

    def _repr_html_(self) -> str:
        return lab_html(self.connection, self.folder)
