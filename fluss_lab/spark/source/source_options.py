"""Options of the data source ``fluss``: which cluster, which table, and what of it.

Spark gives options as text with names in any case. They are read here without pyspark, by the processes that plan on the
driver's machine; tasks get what was found, never a path to find it by. Spark shows no option in whose name ``token``
stands.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fluss_lab.client import Connection, ServerAddress
from fluss_lab.errors import InvalidPropertyError
from fluss_lab.model import TablePath
from fluss_lab.model.config.options import CLIENT_TLS_CA
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.rpc.access.tls import LOOPBACK, Trust, read_trusted
from fluss_lab.rpc.access.token import read_token
from fluss_lab.server.cluster import locate

#: The folder of a lab on this machine, whose server runs.
LAB: Final = "lab"
#: ``host:port`` of a cluster's coordinator; with a token, and with TLS as `Lab.connect` decides.
SERVER: Final = "server"
TOKEN_FILE: Final = "token.file"  # noqa: S105  # an option's name
TOKEN: Final = "token"  # noqa: S105  # an option's name
TLS: Final = "tls"
TLS_CA: Final = "tls.ca"
#: PEM text instead of a file, and the name that the certificate must have: for addresses that were found already.
TLS_CA_TEXT: Final = "tls.ca.text"
TLS_NAME: Final = "tls.name"
CLIENT_PREFIX: Final = "client."
#: Metadata of a table's first column in Spark's catalog: the options that the table was created with.
_CREATION: Final = "fluss.options"
PLACE_OPTIONS: Final = frozenset({LAB, SERVER, TOKEN_FILE, TOKEN, TLS, TLS_CA, TLS_CA_TEXT, TLS_NAME})
#: What the defaults of a session of several labs have instead of one's place: which labs.
SEVERAL: Final = "several"

TABLE: Final = "table"
#: What ``load("nyc.flights")`` and ``save("nyc.flights")`` give.
PATH: Final = "path"
#: What Spark's catalog adds to the options of ``CREATE TABLE ... USING fluss``.
_OF_CATALOG: Final = frozenset(
    {"owner", "provider", "location", "external", "is_managed_location", "table_type", "comment", "collation"}
)
#: Under which it repeats the options themselves.
_CATALOG_PREFIX: Final = "option."

COLUMNS: Final = "columns"
WHERE: Final = "where"
AS_OF: Final = "as.of"
READ_POINT: Final = "read.point"
PARTITIONS: Final = "partitions"
BUCKETS: Final = "buckets"
LIMIT: Final = "limit"
WITH_SOURCE: Final = "with.source"
CHANGELOG: Final = "changelog"
START: Final = "start"
END: Final = "end"
NET: Final = "net"
#: Of a changelog whose offsets were decided before: the ranges as JSON, by the ids of table and partitions.
RANGES: Final = "ranges"
#: Of a stream that was asked of a table: the table's id, for another one may have its path by the time the query starts.
TABLE_ID: Final = "table.id"
#: And when that table was made, in epoch milliseconds: a lab whose folder is made anew gives the same ids.
TABLE_CREATED: Final = "table.created.ms"
#: Of one whose start is offsets by partition: ids of the partitions that were meant, for others may have their names by then.
START_PARTITIONS: Final = "start.partitions"
#: How many tasks a read is divided among at least, when there is enough to read; default: the driver machine's cores.
TASKS: Final = "tasks"
#: ``maxRowsPerTrigger``, ``minRowsPerTrigger``, ``failOnDataLoss``.
ROWS_MAX: Final = "maxrowspertrigger"
ROWS_MIN: Final = "minrowspertrigger"
FAIL_ON_DATA_LOSS: Final = "failondataloss"
#: Of ``spark.readStream`` only.
STREAM_OPTIONS: Final = frozenset({ROWS_MAX, ROWS_MIN, FAIL_ON_DATA_LOSS, TABLE_ID, TABLE_CREATED, START_PARTITIONS})
#: Of writing: Spark's own options, the folder for rows on their way, and the column that says what is done with a row.
CHECKPOINT: Final = "checkpointlocation"
#: As which `DataStreamWriter.queryName` passes the query's name on.
QUERY_NAME: Final = "queryname"
STAGING: Final = "staging"
CHANGE_COLUMN: Final = "change.column"
#: What only this package gives.
_UNSAID: Final = frozenset({PATH, TLS_CA_TEXT, TLS_NAME, RANGES, TABLE_ID, TABLE_CREATED, START_PARTITIONS, QUERY_NAME})
#: Of ``spark.read``.
READ_OPTIONS: Final = frozenset(
    {
        COLUMNS,
        WHERE,
        AS_OF,
        READ_POINT,
        PARTITIONS,
        BUCKETS,
        LIMIT,
        WITH_SOURCE,
        CHANGELOG,
        START,
        END,
        NET,
        RANGES,
        TASKS,
    }
)


@dataclass(frozen=True, slots=True)
class ClusterPlace:
    """How a cluster is found: by a lab's folder, or by an address.

    Attributes:
        folder: Of a lab on this machine; None: `address` says it.
        given: Where a server is; None: the folder says it.
    """

    folder: Path | None = None
    given: ServerAddress | None = field(default=None, repr=False)

    def address(self) -> ServerAddress:
        """Return where the coordinator is now; a folder's server may have another port since.

        Raises:
            ServerUnavailableError: No server runs in the folder.
            AuthenticationError: Its token cannot be read.
        """
        if self.folder is None:
            assert self.given is not None
            return self.given
        place = locate(self.folder)
        return ServerAddress.of(place.host, place.port, place.token, place.trust)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What the options say.

    Attributes:
        place: Which cluster.
        client: Client options.
        table: Which table.
        values: All else, by names in lower case.
    """

    place: ClusterPlace
    client: Mapping[str, str]
    table: TablePath
    values: Mapping[str, str]

    def connect(self) -> Connection:
        """Return a new connection to the cluster; close it."""
        return Connection(self.place.address, self.client)

    def check(self, known: Collection[str], what: str) -> None:
        """Refuse unknown options: most are slips of the pen.

        Raises:
            InvalidPropertyError: There is one.
        """
        for name in self.values:
            if name not in known:
                names = ", ".join(sorted({TABLE, *known, *PLACE_OPTIONS} - _UNSAID))
                raise InvalidPropertyError(f"format fluss: {what} has no option {name!r}; expected {names} or client.*")

    def text(self, name: str) -> str | None:
        """Return an option; None when it is not given, or empty."""
        return self.values.get(name) or None

    def flag(self, name: str, default: bool = False) -> bool:
        """Return an option that is true or false.

        Raises:
            InvalidPropertyError: It is neither.
        """
        return _flag(name, self.values.get(name), default)

    def number(self, name: str) -> int | None:
        """Return an option that is a whole number of at least 0; None when it is not given.

        Raises:
            InvalidPropertyError: It is none.
        """
        text = self.text(name)
        if text is None:
            return None
        if not text.strip().isdecimal():
            raise InvalidPropertyError(f"option {name}: expected a whole number of at least 0, found {text!r}")
        return int(text)

    def names(self, name: str) -> list[str] | None:
        """Return an option that is a list: JSON, or names between commas; None when it is not given.

        Raises:
            InvalidPropertyError: It is no list of texts.
        """
        text = self.text(name)
        if text is None:
            return None
        if not text.lstrip().startswith("["):
            return [each.strip() for each in text.split(",")]
        found = _json(name, text)
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise InvalidPropertyError(f"option {name}: expected a JSON list of names, found {text!r}")
        return found

    def numbers(self, name: str) -> list[int] | None:
        """Return an option that is a list of whole numbers between commas; None when it is not given.

        Raises:
            InvalidPropertyError: It is none.
        """
        text = self.text(name)
        if text is None:
            return None
        parts = [each.strip() for each in text.strip("[] ").split(",") if each.strip()]
        if not all(each.isdecimal() for each in parts):
            raise InvalidPropertyError(f"option {name}: expected whole numbers between commas, found {text!r}")
        return [int(each) for each in parts]

    def moment(self, name: str) -> str | int | None:
        """Return an option that is a time: ISO text, or a number (epoch milliseconds, or a lake snapshot's id)."""
        text = self.text(name)
        return None if text is None else _number_or_text(text)

    def read_point(self, name: str = READ_POINT) -> ReadPoint | None:
        """Return an option that is a read point in JSON; None when it is not given.

        Raises:
            InvalidRequestError: It is none.
        """
        text = self.text(name)
        return None if text is None else ReadPoint.from_json(text)

    def edge(self, name: str) -> Any:
        """Return an option that says where a changelog or stream starts or ends; None when it is not given.

        ``earliest``, ``latest``, a time, a lake snapshot's id, a read point in JSON, or offsets as a JSON object by bucket:
        ``{"0": 17}``, of a partitioned table ``{"2013-01/0": 17}``.

        Raises:
            InvalidPropertyError: JSON that is none of these.
            InvalidRequestError: A read point that cannot be read.
        """
        text = self.text(name)
        if text is None:
            return None
        if not text.lstrip().startswith("{"):
            return _number_or_text(text)
        found = _json(name, text)
        if "table_id" in found:
            return ReadPoint.from_json(text)
        return dict(_offset(name, key, value) for key, value in found.items())


def parse_options(options: Mapping[str, str], defaults: Mapping[str, str] | None = None) -> SourceOptions:
    """Return what the options of the data source say.

    Args:
        options: As Spark gives them.
        defaults: The place of a session's own cluster, used when the options name none.

    Raises:
        InvalidPropertyError: No table, no cluster, two clusters, a folder that is not there, or a value that cannot be read.
        InvalidNameError: The table's name breaks the rule.
        AuthenticationError: The token file cannot be read.
    """
    given = {name: value for name, value in _lower(options).items() if not _is_of_catalog(name)}
    table = given.pop(TABLE, None) or given.pop(PATH, None)
    given.pop(PATH, None)
    if not table:
        raise InvalidPropertyError("format fluss: expected the option table, as 'database.table'")
    place = {name: given.pop(name) for name in PLACE_OPTIONS if name in given}
    client = {name: given.pop(name) for name in list(given) if name.startswith(CLIENT_PREFIX)}
    if LAB in place and not (folder := Path(place[LAB]).absolute()).exists():
        # Its server would be waited for, as for one that is being started again.
        raise InvalidPropertyError(f"option {LAB}: expected a lab's folder, found nothing at {folder}")
    if not {LAB, SERVER} & set(place):
        if place:
            raise InvalidPropertyError(f"format fluss: expected {LAB} or {SERVER} beside {', '.join(sorted(place))}")
        known = dict(defaults or {})
        if SEVERAL in known:
            raise InvalidPropertyError(
                f"format fluss: which lab? {known[SEVERAL]} are open in this process and share its Spark: expected the option {LAB} (a "
                f"lab's folder) or {SERVER}; or, where the others were closed since, take the session by lab.spark once more"
            )
        client = {name: value for name, value in known.items() if name.startswith(CLIENT_PREFIX)} | client
        place = {name: value for name, value in known.items() if name in PLACE_OPTIONS}
    return SourceOptions(_place(place, client), client, TablePath.parse(table), given)


def own_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that the caller gave, less what Spark's catalog adds; a token stays out: name it by its file."""
    return {name: value for name, value in _lower(options).items() if name != TOKEN and not _is_of_catalog(name)}


def creation_metadata(options: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata of a table's first column in Spark's catalog by which `creation_options` knows its options."""
    return {_CREATION: json.dumps(own_options(options))}


def creation_options(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the options that a table of Spark's catalog was created with: Spark passes on only those of the read.

    Args:
        metadata: Of its first column.

    Raises:
        InvalidPropertyError: It was created with columns of its own.
    """
    if _CREATION not in metadata:
        raise InvalidPropertyError(
            "format fluss: expected the option table, as 'database.table', found none: Spark passes on no options of a CREATE TABLE "
            "with columns; leave the columns out: CREATE TABLE ... USING fluss OPTIONS (table 'database.table')"
        )
    options: dict[str, str] = json.loads(metadata[_CREATION])
    return options


def _lower(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}


def _is_of_catalog(name: str) -> bool:
    return name in _OF_CATALOG or name.startswith(_CATALOG_PREFIX)


def place_options(address: ServerAddress) -> dict[str, str]:
    """Return the options that name a cluster by an address that was found already; they hold its token."""
    found = {SERVER: f"{address.host}:{address.port}", TOKEN: address.token, TLS: str(address.tls).lower()}
    if address.tls:
        found |= {TLS_CA_TEXT: address.ca, TLS_NAME: address.name}
    return found


def connection_options(connection: Connection) -> dict[str, str]:
    """Return the options that name a connection's cluster: by the lab's folder, where its server is found after a restart too."""
    if connection.folder is not None:
        return {LAB: str(connection.folder), **connection.options}
    return {**place_options(connection.address), **connection.options}


def _place(given: Mapping[str, str], client: Mapping[str, str]) -> ClusterPlace:
    if LAB in given and SERVER in given:
        raise InvalidPropertyError(f"format fluss: expected {LAB} or {SERVER}, found both")
    if LAB in given:
        return ClusterPlace(Path(given[LAB]).absolute())
    if SERVER not in given:
        raise InvalidPropertyError(
            f"format fluss: which cluster? Expected the option {LAB} (a lab's folder) or {SERVER} (host:port, with "
            f"{TOKEN_FILE}); the session of a Lab (lab.spark) knows its own"
        )
    host, _, port = given[SERVER].rpartition(":")
    if not host or not port.isdecimal():
        raise InvalidPropertyError(f"option {SERVER}: expected 'host:port', found {given[SERVER]!r}")
    name = host.removeprefix("[").removesuffix("]")
    if TOKEN not in given and TOKEN_FILE not in given:
        raise InvalidPropertyError(f"option {SERVER}: expected {TOKEN_FILE} (or {TOKEN}) beside it")
    token = given[TOKEN] if TOKEN in given else read_token(Path(given[TOKEN_FILE]))
    ca_file = given.get(TLS_CA) or client.get(CLIENT_TLS_CA.key)
    speaks_tls = _flag(TLS, given.get(TLS), bool(ca_file) or name not in LOOPBACK)
    if not speaks_tls:
        return ClusterPlace(given=ServerAddress(name, int(port), token))
    option = f"option {TLS_CA}" if TLS_CA in given else CLIENT_TLS_CA.key
    trust = Trust(given.get(TLS_CA_TEXT) or (read_trusted(option, ca_file) if ca_file else ""), given.get(TLS_NAME, ""))
    return ClusterPlace(given=ServerAddress.of(name, int(port), token, trust))


def _flag(name: str, text: str | None, default: bool) -> bool:
    if text is None or not text.strip():
        return default
    if text.strip().lower() not in {"true", "false"}:
        raise InvalidPropertyError(f"option {name}: expected true or false, found {text!r}")
    return text.strip().lower() == "true"


def _number_or_text(text: str) -> str | int:
    return int(text) if text.strip().isdecimal() else text.strip()


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidPropertyError(f"option {name}: expected JSON, found {text[:100]!r} ({error})") from None


def _offset(name: str, key: str, value: Any) -> tuple[int | tuple[str, int], int]:
    partition, slash, bucket = key.rpartition("/")
    if not bucket.isdecimal() or isinstance(value, bool) or not isinstance(value, int):
        raise InvalidPropertyError(
            f'option {name}: expected offsets by bucket, as {{"0": 17}} or {{"partition/0": 17}}, found {key!r}: {value!r}'
        )
    return ((partition, int(bucket)) if slash else int(bucket)), value
