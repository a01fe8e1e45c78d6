"""Access to the catalog: loading it once, and telling its errors apart.

pyiceberg lets through what its catalogs raise, among it raw errors of SQLAlchemy. Every call of the catalog goes
through `CatalogAccess.call`, which waits for a locked SQLite file and turns the rest into the house's errors.
"""

from __future__ import annotations

import logging
import random
import socket
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from cachetools import LRUCache

from fluss_lab.errors import (
    AuthenticationError,
    CommitOutcomeUnknownError,
    CorruptDataError,
    FlussError,
    InvalidPropertyError,
    InvalidRequestError,
    ResourceExhaustedError,
    ServerUnavailableError,
    StorageError,
    TableNotFoundError,
    UnavailableError,
)
from fluss_lab.lake.iceberg.files.lake_errors import (
    REMEDY,
    UnwrittenError,
    catalog_error,
    database_cause,
    safe_text,
    sql_state,
    sqlite_code,
    store_error,
    unchanged_error,
)
from fluss_lab.lake.iceberg.table.round_tables import RoundTables
from fluss_lab.model import TablePath
from fluss_lab.model.config.lake_options import FORMAT_DEFAULT, LAKE_PREFIX
from fluss_lab.model.config.option_secrets import conceal, secrets_among, secrets_pattern
from fluss_lab.model.named_paths import check_working_directory

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table
    from pyiceberg.table.update import TableRequirement, TableUpdate

    Requirements = tuple[TableRequirement, ...]
    Updates = tuple[TableUpdate, ...]

T = TypeVar("T")
#: Where a pooled connection's record has the identity of its file.
_IDENTITY: Final = "fluss_lab.file"
#: Device and number of a catalog's file, and how often SQLite saw it change.
_Version: TypeAlias = tuple[int, int, int]
_LOG: Final = logging.getLogger(__name__)

#: The property of pyiceberg for the class that opens files, and which one does: `fluss_lab.lake.iceberg.files.durable_io`, loaded when used.
IO_PROPERTY: Final = "py-io-impl"
DURABLE_IO: Final = "fluss_lab.lake.iceberg.files.durable_io.DurableFileIO"
#: The property for the class of a catalog, and the one of REST catalogs, loaded when used.
CATALOG_PROPERTY: Final = "py-catalog-impl"
REST_CATALOG: Final = "fluss_lab.lake.iceberg.table.caching_rest_catalog.CachingRestCatalog"
NAME_PROPERTY: Final = "name"
NAME_DEFAULT: Final = "fluss_lab"
#: Tables kept as they were loaded. Metadata is shared with the catalog's own cache.
TABLES_KEPT: Final = 24
#: A locked SQLite file: each try already waits 5 s inside SQLite; three tries and their pauses stay below 20 s, so
#: within the 30 s for which clients wait.
LOCKED_TRIES: Final = 3
LOCKED_PAUSE_S: Final = 0.2
#: SQLSTATEs after which a statement was rolled back because of another one: serialization, deadlock, a lock not had.
_IN_THE_WAY: Final = frozenset({"40001", "40P01", "55P03"})
#: Drivers of databases that SQLAlchemy loads by a URI, and the packages that have them.
_DRIVERS: Final = {
    "psycopg": "psycopg[binary]", "psycopg2": "psycopg2-binary", "asyncpg": "asyncpg", "pg8000": "pg8000",
    "MySQLdb": "mysqlclient", "pymysql": "pymysql",
}  # fmt: skip
#: Beginnings of the keys that pyiceberg takes as mappings, and keys in these that are numbers.
_NESTED: Final = frozenset({"auth", "ssl"})
_SECONDS: Final = frozenset({"refresh_margin", "expires_in"})
#: Characters that end a path when pyiceberg reads a location as a URI.
_BAD_IN_LOCATION: Final = "?#"
#: What a change of a table's metadata ends in when it certainly was not made, and would not be if it were sent again at once.
NOT_DONE: Final = (AuthenticationError, InvalidRequestError, ResourceExhaustedError, StorageError, UnwrittenError)


class CatalogAccess:
    """The catalog of a lake, loaded on first use. Safe in any thread.

    Attributes:
        rounds: The tables that rounds work on.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.properties = {str(key): str(value) for key, value in properties.items()}
        self.name = self.properties.pop(NAME_PROPERTY, NAME_DEFAULT)
        warehouse = self.properties.get("warehouse", "")
        kind = self.properties.get("type", "").lower()
        if kind == "in-memory":
            raise InvalidPropertyError(
                f"lake catalog {self.name!r}: a catalog of type 'in-memory' is in one process, and servers, clients and tasks "
                "are several; use type 'sql' with a file, or a catalog's server"
            )
        if kind == "sql" and warehouse and not (warehouse.startswith("/") or ":" in warehouse):
            raise InvalidPropertyError(
                f"warehouse {warehouse!r}: expected a URI or an absolute path: each process would take it from another folder"
            )
        if any(character in warehouse for character in _BAD_IN_LOCATION):
            raise InvalidPropertyError(
                f"warehouse {warehouse!r}: the characters {_BAD_IN_LOCATION!r} cannot be in a location, where they end the path: put "
                f"the lake ({LAKE_PREFIX}{FORMAT_DEFAULT}.warehouse), or the lab in whose folder it is, into a folder without them"
            )
        if self.properties.get("snapshot-loading-mode", "all") != "all":
            raise InvalidPropertyError(
                f"lake catalog {self.name!r}: snapshot-loading-mode: expected all, found "
                f"{self.properties['snapshot-loading-mode']!r}: tiering and replay go by the snapshots before the newest; leave it out"
            )
        options = {f"{LAKE_PREFIX}{FORMAT_DEFAULT}.{key}": value for key, value in self.properties.items()}
        self._secrets = secrets_pattern(secrets_among(options))
        self.rounds = RoundTables()
        self._catalog: Catalog | None = None
        self._lock = threading.Lock()
        self._file: _CatalogFile | None = None
        self._loaded: LRUCache[TablePath, tuple[_Version, Table]] = LRUCache(TABLES_KEPT)
        self._loaded_lock = threading.Lock()

    @property
    def is_rest(self) -> bool:
        """Return whether the catalog is a REST server: it checks commits by itself, and has the last word on locations."""
        return is_rest(self.properties)

    @property
    def warehouse(self) -> str | None:
        """Return where tables are put, when the client decides it: not with a REST catalog, which decides itself."""
        return None if self.is_rest else self.properties.get("warehouse")

    def catalog(self) -> Catalog:
        """Return the catalog.

        Raises:
            InvalidPropertyError: The properties describe none that pyiceberg loads.
            ServerUnavailableError: It does not answer.
        """
        with self._lock:
            if self._catalog is None:
                what = f"lake catalog {self.name!r}"
                check_working_directory(what)
                try:
                    self._catalog = self._ask(lambda: _load(self.name, self.properties), what, sent=False)
                except (ValueError, TypeError, KeyError) as error:
                    raise InvalidPropertyError(
                        f"{what}: its properties describe no catalog: {safe_text(error)}"
                    ) from error
                if (file := sqlite_file(self.properties.get("uri", ""))) is not None:
                    self._file = _CatalogFile(file)
            return self._catalog

    def _ask(self, action: Callable[[], T], what: object, *, sent: bool) -> T:
        try:
            return _translate(action, what, sent=sent)
        except Exception as error:
            conceal(error, self._secrets)  # libraries quote addresses, and parts of them
            raise

    def file_io(self, location: str) -> FileIO:
        """Return access to files, by the properties alone: the catalog is not asked."""
        from pyiceberg.io import load_file_io

        return load_file_io({IO_PROPERTY: DURABLE_IO, **self.properties}, location)

    def call(self, what: object, action: Callable[[Catalog], T]) -> T:
        """Return what the action returns, waiting for a locked SQLite file.

        Args:
            what: The action, its text for messages.
            action: Harmless when it is repeated after it failed with a locked database.

        Raises:
            UnavailableError: The catalog stayed locked or does not answer; the same call may succeed later.
            CorruptDataError: The catalog's own file is damaged.
            StorageError: The catalog's database or a file of a store failed.
            Exception: pyiceberg's own, for what the caller distinguishes (absent tables, failed commits).
        """
        catalog = self.catalog()
        for attempt in range(1, LOCKED_TRIES + 1):
            try:
                return self._ask(lambda: action(catalog), what, sent=False)
            except CatalogLockedError:
                if attempt == LOCKED_TRIES:
                    raise
                time.sleep(LOCKED_PAUSE_S * attempt * (1 + random.random()))  # noqa: S311
        raise AssertionError

    def commit(
        self, what: str, lake: Table, requirements: Requirements, updates: Updates, *, repeatable: bool = False
    ) -> None:
        """Send a change of a table's metadata to the catalog, once, and remove metadata files that are too old then.

        Args:
            what: The change in words, for messages.
            lake: The table.
            requirements: What must hold.
            updates: The changes.
            repeatable: Whether the caller makes the change again when it is asked again, made or not. Then whatever a
                catalog or store fails with becomes the house's, as in `call`.

        Raises:
            CatalogLockedError, and those of `NOT_DONE`: Nothing was changed; or it is `repeatable`.
            CommitOutcomeUnknownError: The catalog says that it does not know.
            CommitFailedException: pyiceberg's: the catalog says that a requirement does not hold.
            Exception: Whether anything was changed is not known.
        """
        from pyiceberg.exceptions import BadRequestError, CommitStateUnknownException

        try:
            response = self._ask(
                lambda: lake.catalog.commit_table(lake, requirements, updates), what, sent=not repeatable
            )
        except CommitStateUnknownException as error:
            raise CommitOutcomeUnknownError(f"{what}: the catalog does not say whether it was done: {error}") from error
        except BadRequestError as error:
            raise InvalidRequestError(
                f"{what}: the catalog refused the request: {safe_text(error)}; nothing was committed"
            ) from error
        try:
            lake.catalog._delete_old_metadata(lake.io, lake.metadata, response.metadata)
        except Exception as error:
            _LOG.warning("%s: old metadata files stay: %s", what, error)

    def pinned_table(self, path: TablePath) -> Table | None:
        """Return the lake table as it was pinned for a task; None: it is had from the catalog."""
        del path
        return None

    def load_table(self, path: TablePath) -> Table:
        """Return the lake table of a path as it is now.

        Raises:
            TableNotFoundError: There is none; or the catalog is a file that this machine does not have: none is made.
            CorruptDataError: The file of its metadata is missing, or is not what was written.
            UnavailableError, StorageError: As `call`.

        Cost: 2 ms with a SQLite catalog, 40 microseconds while nobody has changed that since the table was loaded.
        """
        version = None if self._file is None else self._file.version()
        with self._loaded_lock:
            known = self._loaded.get(path)
        if known is not None and known[0] == version:
            return copy(known[1])
        lake = self._load_table(path)
        # A change that came since the version was asked makes another one, whether it is in what was loaded or not.
        if version is not None:
            with self._loaded_lock:
                self._loaded[path] = (version, lake)
        return copy(lake)

    def _load_table(self, path: TablePath) -> Table:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, ValidationError

        what = _Loading(path)
        if self._catalog is None:
            self._check_file(path)
        try:
            return self.call(what, lambda catalog: catalog.load_table(identifier(path)))
        except FileNotFoundError as error:
            check_working_directory(what)
            raise CorruptDataError(f"{what}: the file of its metadata is missing: {error}; {REMEDY}") from error
        except (ValueError, EOFError, zlib.error, ValidationError) as error:
            raise CorruptDataError(
                f"{what}: its metadata is not that of a table: {type(error).__name__}: {error}; {REMEDY}"
            ) from error
        except (NoSuchTableError, NoSuchNamespaceError) as error:
            raise TableNotFoundError(
                f"lake table {path}: not in catalog {self.name!r}: it was dropped there, or the catalog's own database was lost or "
                "emptied: restore that from a backup. Only if what the lake held is lost for good, disable and enable the lake "
                f"for the table to make a new one, then run 'fluss-lab repair {path} --adopt'"
            ) from error

    def _check_file(self, path: TablePath) -> None:
        """See that a catalog's file is there before it is opened, which would make an empty one: on an executor, say."""
        file = sqlite_file(self.properties.get("uri", ""))
        if file is not None and not file.exists():
            raise TableNotFoundError(
                f"lake table {path}: the file of catalog {self.name!r}, {file}, is not on {socket.gethostname()}: where another "
                "machine has it, give the lake a catalog that all of them reach (REST, PostgreSQL); where it was lost, restore it "
                "from a backup"
            )


class _CatalogFile:
    """The file of a SQLite catalog, and whether it has changed since it was read, by SQLite's own account. Safe in any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._open: tuple[int, int, Any] | None = None

    def version(self) -> _Version | None:
        """Return what differs after every commit to the file, whoever made it; None: that is not known now."""
        import sqlite3

        try:
            found = self._path.stat()
            with self._lock:
                connection = self._connection(found.st_dev, found.st_ino)
                return found.st_dev, found.st_ino, connection.execute("PRAGMA data_version").fetchone()[0]
        except (OSError, sqlite3.Error):
            return None

    def _connection(self, device: int, number: int) -> Any:
        """Return the one connection whose account goes on: another one counts anew, as does another file of the name."""
        import sqlite3

        if self._open is None or self._open[:2] != (device, number):
            # Who commits is not waited for: the caller does that.
            connection = sqlite3.connect(self._path, timeout=0, check_same_thread=False)
            weakref.finalize(self, connection.close)
            self._open = (device, number, connection)
        return self._open[2]


@dataclass(frozen=True, slots=True)
class _Loading:
    """The loading of a table, in words when a message needs them: every read of the lake begins with it."""

    path: TablePath

    def __str__(self) -> str:
        return f"load lake table {self.path}"


class CatalogLockedError(UnavailableError):
    """Another connection holds the catalog's database locked. Nothing was changed."""


def identifier(path: TablePath) -> tuple[str, str]:
    """Return a path as pyiceberg names tables: the namespace is the database."""
    return (path.database, path.table)


def is_rest(properties: Mapping[str, str]) -> bool:
    """Return whether a catalog's properties are those of a REST server, as pyiceberg takes them."""
    kind = properties.get("type", "").lower()
    return kind == "rest" or (not kind and properties.get("uri", "").startswith("http"))


def _load(name: str, properties: Mapping[str, str]) -> Catalog:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.catalog.sql import SqlCatalog

    from fluss_lab.lake.iceberg.table.caching_sql_catalog import CachingSqlCatalog

    settings = {IO_PROPERTY: DURABLE_IO, **properties}
    if is_rest(settings) and CATALOG_PROPERTY not in settings:
        settings.pop("type", None)
        settings = _nest_settings({**settings, CATALOG_PROPERTY: REST_CATALOG})
    database = sqlite_file(settings.get("uri", ""))
    if database is not None:
        database.parent.mkdir(parents=True, exist_ok=True)
    catalog = load_catalog(name, **settings)
    if type(catalog) is SqlCatalog:
        plain, catalog = catalog, CachingSqlCatalog(name, **catalog.properties)
        plain.close()
    if database is not None:
        _set_up_file(name, catalog, database.absolute())
    return catalog


def _nest_settings(settings: Mapping[str, str]) -> dict[str, Any]:
    """Return settings with those under ``auth.`` and ``ssl.`` as pyiceberg reads them: as mappings in one another."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        head, *rest = key.split(".")
        if head not in _NESTED or not rest:
            found[key] = value
            continue
        place = found
        for name in (head, *rest[:-1]):
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise ValueError(f"{key}: {name!r} has a value of its own already")
        place[rest[-1]] = int(value) if rest[-1] in _SECONDS else value
    return found


def sqlite_file(uri: str) -> Path | None:
    """Return the file of a SQLite catalog's URI; None for other catalogs and for one in memory."""
    if not uri.startswith("sqlite"):
        return None
    from sqlalchemy.engine import make_url

    database = make_url(uri).database
    return Path(database) if database and database != ":memory:" else None


def _set_up_file(name: str, catalog: Any, file: Path) -> None:
    """Have SQLite's connections be durable, and be those of the file that has its name.

    SQLite syncs the folder too when it deletes its journal: else a power loss could bring a commit's undoing back. And a file
    that was replaced (by a backup, say) lives on for whoever has it open: what is committed there nobody else ever sees.
    """
    from sqlalchemy import event
    from sqlalchemy.exc import DisconnectionError

    def check_file(*_: Any) -> None:
        _identity(name, file)  # else SQLite would make an empty one

    def note_file(connection: Any, record: Any) -> None:
        connection.execute("PRAGMA synchronous=EXTRA")
        record.info[_IDENTITY] = _identity(name, file)

    def check_connection(_connection: Any, record: Any, _fairy: Any) -> None:
        if record.info[_IDENTITY] != _identity(name, file):
            raise DisconnectionError(f"{file} was replaced")  # to SQLAlchemy: open another one

    for moment, listener in (("do_connect", check_file), ("connect", note_file), ("checkout", check_connection)):
        event.listen(catalog.engine, moment, listener)
    # Loading the catalog has opened a connection without all that.
    catalog.engine.dispose()


def _identity(name: str, file: Path) -> tuple[int, int]:
    """Return device and number of a catalog's file.

    Raises:
        StorageError: It is not there.
    """
    try:
        found = file.stat()
    except OSError as error:
        raise StorageError(
            f"lake catalog {name!r}: its file {file}: {error.strerror}; nothing was changed: restore it from a backup"
        ) from error
    return found.st_dev, found.st_ino


def _translate(action: Callable[[], T], what: object, *, sent: bool) -> T:
    """Run an action; errors of connections, credentials and settings become the house's, others pass.

    Of one that is `sent` to change something pass those too after which it may have happened all the same.
    """
    from pyiceberg import exceptions

    try:
        return action()
    except (exceptions.UnauthorizedError, exceptions.ForbiddenError, exceptions.OAuthError) as error:
        raise AuthenticationError(f"{what}: the catalog refused the credentials: {safe_text(error)}") from error
    except exceptions.ServiceUnavailableError as error:
        raise ServerUnavailableError(f"{what}: the catalog is not available: {safe_text(error)}") from error
    except (exceptions.NotInstalledError, exceptions.NoSuchPropertyException, ImportError) as error:
        # pyiceberg says of every driver that is absent that SQLAlchemy is.
        cause = error.__cause__ if isinstance(error.__cause__, ImportError) else error
        raise InvalidPropertyError(f"{what}: {cause}{_to_install(getattr(cause, 'name', None))}") from error
    except Exception as error:
        if is_locked(error):
            raise CatalogLockedError(
                f"{what}: the catalog's database is locked by another process; try again, or find who holds it"
            ) from error
        if sent and (unchanged := unchanged_error(str(what), error)) is not None:
            raise unchanged from error
        if not sent and not isinstance(error, FlussError):
            found = catalog_error(str(what), error)
            if found is None and isinstance(error, OSError):
                found = store_error(str(what), error)
            if found is not None:
                raise found from error
        raise


def _to_install(module: str | None) -> str:
    """Return what to do about a database's driver that is absent: the product comes with SQLite's alone."""
    package = _DRIVERS.get(module or "")
    return (
        "" if package is None else f": the catalog's uri needs a driver that is not installed: pip install '{package}'"
    )


def is_locked(error: BaseException) -> bool:
    """Return whether an error is the database's answer that another connection is in the way. Then nothing was changed."""
    import sqlite3

    cause = database_cause(error)
    return sql_state(cause) in _IN_THE_WAY or sqlite_code(cause) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
