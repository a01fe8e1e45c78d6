"""Every option: of a table, of the cluster, of a client. Its name, type, default, range, and what it means.

Names are Apache Fluss's where it has the option. Values travel and rest as strings; `Option.parse` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo
from difflib import get_close_matches
from typing import Any, Final

from fluss_lab.errors import InvalidPropertyError
from fluss_lab.model.config.option_kinds import (
    PORT_MAX,
    Option,
    boolean,
    choice,
    choice_of,
    duration,
    integer,
    size,
    text,
    zone_of,
)
from fluss_lab.model.times import format_duration, time_zone
from fluss_lab.model.values.casts import is_unicode

# -- table options ---------------------------------------------------------------------------------------------------

DATALAKE_ENABLED: Final = boolean("table.datalake.enabled", False, "tier the table into the lake", alterable=True)
#: Unset: the format of the cluster's lake (``datalake.format``); another one is refused when the lake table is made.
DATALAKE_FORMAT: Final = text("table.datalake.format", "", "the lake's table format; empty: that of the cluster's lake")
DATALAKE_FRESHNESS: Final = duration(
    "table.datalake.freshness", "3min", "how far the lake may lag behind", alterable=True, minimum=1
)
DATALAKE_AUTO_MAINTENANCE: Final = boolean(
    "table.datalake.auto-maintenance", True, "compact files and expire snapshots while tiering", alterable=True
)
DATALAKE_DELETE_MODE: Final = choice(
    "table.datalake.delete-mode", "position", ("position", "equality"),
    "how rows of a primary-key table are deleted in the lake: by position deletes that carry their row, or by equality",
)  # fmt: skip
DATALAKE_CHANGELOG_RETENTION: Final = duration(
    "table.datalake.changelog-retention", "7d",
    "how long replay reaches back behind a compaction of a primary-key table", alterable=True, minimum=1,
)  # fmt: skip
DATALAKE_SNAPSHOT_RETENTION: Final = duration(
    "table.datalake.snapshot-retention",
    "1d",
    "age after which lake snapshots may be expired",
    alterable=True,
    minimum=1,
)
DATALAKE_SNAPSHOTS_MIN: Final = integer(
    "table.datalake.snapshots-min", 20, "lake snapshots that stay, however old", alterable=True, minimum=1
)
LOG_TTL: Final = duration(
    "table.log.ttl",
    "7d",
    "how long the cluster keeps records that the lake holds too, or all without lake",
    alterable=True,
)
LOG_LOCAL_SEGMENTS: Final = integer(
    "table.log.tiered.local-segments",
    2,
    "log segments that stay in the cluster when remote storage has them",
    alterable=True,
    minimum=1,
)
MERGE_ENGINE: Final = choice(
    "table.merge-engine", "default", ("default", "first_row", "versioned"), "which of two rows of one key stays"
)
VERSION_COLUMN: Final = text(
    "table.merge-engine.versioned.ver-column",
    "",
    "the column whose larger value stays, with the versioned merge engine",
)
#: Unset: ``allow``; with the merge engines ``first_row`` and ``versioned``: ``ignore``.
DELETE_BEHAVIOR: Final = choice(
    "table.delete.behavior", "default", ("default", "allow", "ignore", "disable"), "what becomes of deletes"
)
AUTO_PARTITION_ENABLED: Final = boolean(
    "table.auto-partition.enabled", False, "create and drop partitions by the clock", alterable=True
)
AUTO_PARTITION_KEY: Final = text("table.auto-partition.key", "", "the partition column that holds the time, of several")
AUTO_PARTITION_TIME_UNIT: Final = choice(
    "table.auto-partition.time-unit", "day", ("hour", "day", "month", "quarter", "year"), "how long a partition is"
)
AUTO_PARTITION_TIME_ZONE: Final = text("table.auto-partition.time-zone", "UTC", "whose hours and days are meant")
AUTO_PARTITION_PRECREATE: Final = integer(
    "table.auto-partition.num-precreate", 2, "partitions that exist ahead, the present one included", alterable=True
)
AUTO_PARTITION_RETENTION: Final = integer(
    "table.auto-partition.num-retention", 7, "past partitions that stay; -1 for all", alterable=True, minimum=-1
)
TABLE_OPTIONS: Final[dict[str, Option[Any]]] = {
    option.key: option
    for option in (
        DATALAKE_ENABLED, DATALAKE_FORMAT, DATALAKE_FRESHNESS, DATALAKE_AUTO_MAINTENANCE, DATALAKE_DELETE_MODE,
        DATALAKE_CHANGELOG_RETENTION, DATALAKE_SNAPSHOT_RETENTION, DATALAKE_SNAPSHOTS_MIN, LOG_TTL, LOG_LOCAL_SEGMENTS,
        MERGE_ENGINE, VERSION_COLUMN, DELETE_BEHAVIOR, AUTO_PARTITION_ENABLED, AUTO_PARTITION_KEY,
        AUTO_PARTITION_TIME_UNIT, AUTO_PARTITION_TIME_ZONE, AUTO_PARTITION_PRECREATE, AUTO_PARTITION_RETENTION,
    )
}  # fmt: skip

#: Prefixes under which any key is a property: the lake format's own, and a person's own notes. See `free_prefixes`.
FREE_PREFIXES: Final = ("iceberg.", "custom.")
PROPERTY_BYTES_MAX: Final = 4096

# -- cluster options -------------------------------------------------------------------------------------------------

LOG_SEGMENT_FILE_SIZE: Final = size("log.segment.file-size", "256mb", "size at which a log segment rolls", minimum=1024)
LOG_INDEX_INTERVAL_SIZE: Final = size("log.index.interval-size", "4kb", "log bytes between two index entries")
LOG_FLUSH_INTERVAL: Final = duration("log.flush.interval", "1s", "longest time from ack to durable", minimum=1)
LOG_RETENTION_CHECK_INTERVAL: Final = duration(
    "log.retention.check-interval", "10s", "how often ttl is applied", minimum=10
)
LOG_DURABILITY: Final = choice(
    "log.durability", "ack", ("ack", "fsync"), "whether an append is answered after the write or after fsync"
)
BUCKET_REOPEN_WAIT_MAX: Final = duration(
    "bucket.reopen.wait-max", "10s", "longest wait until a bucket that could not be opened is tried again", minimum=1
)
BUCKET_REPORT_INTERVAL: Final = duration(
    "bucket.report.interval",
    "10s",
    "how often servers report to the coordinator how far logs are on the device",
    minimum=1,
)
#: Sizes and milliseconds in messages, and numbers of gRPC, have 32 bits.
MESSAGE_MAX: Final = 2**31 - 1
WAIT_MAX: Final = "24d"
WRITER_ID_EXPIRATION: Final = duration(
    "log.writer-id-expiration", "7d", "when an idle writer id is forgotten", minimum=1000
)
REQUEST_SIZE_MAX: Final = size(
    "server.request-size-max",
    "32mb",
    "largest request or answer; a row may have 7/16 of it, without primary key 7/8",
    minimum=65536,
    maximum=MESSAGE_MAX,
)
SERVER_THREADS: Final = integer("server.threads", 16, "threads for short calls", minimum=2)
SERVER_FETCH_THREADS: Final = integer("server.fetch-threads", 64, "threads for long polls", minimum=1)
SERVER_CONNECTIONS_MAX: Final = integer(
    "server.connections-max",
    512,
    "connections of clients at once, each a file descriptor",
    minimum=16,
    maximum=MESSAGE_MAX - 1,
)
SERVER_ATTACHED_MAX: Final = integer("server.attached-max", 256, "processes attached at once", minimum=1)
UNREAD_SIZE_MAX: Final = size(
    "server.unread-size-max", "512mb", "memory for answers that clients have not taken yet", minimum=1 << 20
)
CONNECTION_UNREAD_SIZE_MAX: Final = size(
    "server.connection-unread-size-max", "256mb", "of which for one connection", minimum=1 << 20
)
HANDSHAKE_TIMEOUT: Final = duration(
    "server.handshake-timeout",
    "5s",
    "how long a new connection may be silent, until it brings the token",
    minimum=100,
    longest=WAIT_MAX,
)
CLIENT_TIMEOUT: Final = duration(
    "server.client-timeout",
    "30s",
    "when a client that takes nothing of its answers loses them",
    minimum=100,
    longest=WAIT_MAX,
)
DISK_RESERVE: Final = size(
    "server.disk-reserve",
    "8mb",
    "room kept on the lab's disk, for starts and drops when it is full; 0 for none",
    minimum=0,
)
SERVER_GRACE: Final = duration("server.grace", "10s", "how long an unattached ephemeral server waits", minimum=1)
BUCKETS_MAX: Final = integer("max.bucket.num", 1024, "most buckets of a table", minimum=1)
PARTITIONS_MAX: Final = integer("max.partition.num", 10_000, "most partitions of a table", minimum=1)
TIERING_HEARTBEAT_TIMEOUT: Final = duration(
    "lake.tiering.heartbeat-timeout", "2min", "silence after which a tierer counts as dead", minimum=100
)
TIERING_TAKEOVER: Final = duration(
    "lake.tiering.takeover", "10s", "silence after which a round asked by hand may take over", minimum=100
)
TIERING_ROUNDS_KEPT: Final = integer(
    "lake.tiering.rounds-kept", 200, "tiering rounds of each table that its history keeps", minimum=1
)
REMOTE_DATA_DIR: Final = text(
    "remote.data.dir",
    "",
    "where rolled segments and snapshots are copied: a folder, or s3://bucket/prefix; empty: the folder `remote` of the lab",
)
REMOTE_S3_ENDPOINT: Final = text(
    "remote.s3.endpoint",
    "",
    "of an object store that is not Amazon's, as http://host:port; empty: Amazon's of the region",
)
REMOTE_S3_REGION: Final = text("remote.s3.region", "", "of the bucket; empty: that of the environment, or us-east-1")
REMOTE_S3_ACCESS_KEY_ID: Final = text(
    "remote.s3.access-key-id", "", "a secret, as the next two; empty: what the servers' environment or machine has"
)
REMOTE_S3_SECRET_ACCESS_KEY: Final = text("remote.s3.secret-access-key", "", "of that id")
REMOTE_S3_SESSION_TOKEN: Final = text("remote.s3.session-token", "", "of temporary credentials")
REMOTE_S3_VIRTUAL_ADDRESSING: Final = boolean(
    "remote.s3.force-virtual-addressing", False, "whether the bucket is a part of the host's name and not of the path"
)
REMOTE_S3_ALLOW_HTTP: Final = boolean("remote.s3.allow-http", False, "whether an endpoint without TLS is used")
REMOTE_S3_CONNECT_TIMEOUT: Final = duration(
    "remote.s3.connect-timeout", "5s", "longest wait for a connection", minimum=1
)
REMOTE_S3_REQUEST_TIMEOUT: Final = duration(
    "remote.s3.request-timeout", "30s", "longest request; one sends up to 96 MB, or a part of 16 MB", minimum=1
)
REMOTE_S3_RETRIES_MAX: Final = integer(
    "remote.s3.retries-max", 8, "how often a request that was not answered is sent again, at growing intervals"
)
REMOTE_S3_RETRY_TIME_MAX: Final = duration(
    "remote.s3.retry-time-max",
    "15s",
    "when no further retry begins; what failed is tried again by itself later",
    minimum=1,
)
REMOTE_S3_CLIENT_CREDENTIALS: Final = choice(
    "remote.s3.client-credentials",
    "server",
    ("server", "environment"),
    "whose credentials clients and Spark's tasks read with: the servers' keys, or what their own environment has",
)
REMOTE_S3_OPTIONS: Final = (
    REMOTE_S3_ENDPOINT, REMOTE_S3_REGION, REMOTE_S3_ACCESS_KEY_ID, REMOTE_S3_SECRET_ACCESS_KEY, REMOTE_S3_SESSION_TOKEN,
    REMOTE_S3_VIRTUAL_ADDRESSING, REMOTE_S3_ALLOW_HTTP, REMOTE_S3_CONNECT_TIMEOUT, REMOTE_S3_REQUEST_TIMEOUT,
    REMOTE_S3_RETRIES_MAX, REMOTE_S3_RETRY_TIME_MAX, REMOTE_S3_CLIENT_CREDENTIALS,
)  # fmt: skip
#: Of which these are credentials.
REMOTE_S3_SECRETS: Final = (REMOTE_S3_ACCESS_KEY_ID, REMOTE_S3_SECRET_ACCESS_KEY, REMOTE_S3_SESSION_TOKEN)
REMOTE_LOG_INTERVAL: Final = duration(
    "remote.log.task-interval-duration", "1min", "how often rolled segments are copied; 0 for never"
)
KV_SNAPSHOT_INTERVAL: Final = duration(
    "kv.snapshot.interval", "10min", "how often key-value snapshots are taken", minimum=1
)
KV_SNAPSHOTS_RETAINED: Final = integer(
    "kv.snapshot.num-retained", 2, "key-value snapshots kept of each bucket", minimum=1
)
KV_ROWS_MEMORY_MAX: Final = size(
    "kv.rows-memory-max", "512mb", "rows of primary-key tables in the memory of a tablet server; more are in mapped files",
    minimum=1 << 20,
)  # fmt: skip
SCANNERS_MAX: Final = integer("server.scanners-max", 256, "full scans open at once", minimum=1)
SCANNER_TTL: Final = duration("server.scanner-ttl", "1min", "how long a full scan may pause", minimum=100)
SCANNER_TTL_CROWDED: Final = duration(
    "server.scanner-ttl-crowded",
    "2s",
    "how long a full scan may pause while another one waits for its place",
    minimum=10,
)
FOLDER_GONE_TIMEOUT: Final = duration(
    "server.folder-gone-timeout",
    "1min",
    "how long a server goes on that nobody is attached to and whose folder is no longer at its path",
    minimum=100,
)
LOOKUP_KEYS_MAX: Final = integer("server.lookup-keys-max", 100_000, "keys of one lookup call", minimum=1)
AUTO_PARTITION_INTERVAL: Final = duration(
    "auto-partition.check.interval", "1min", "how often automatic partitions are looked after", minimum=10
)
SESSION_TIMEOUT: Final = duration(
    "server.session-timeout", "10s", "silence after which a tablet server process is killed and started again",
    minimum=500,
)  # fmt: skip
TABLET_SERVERS: Final = integer("server.tablet-servers", 1, "tablet server processes", minimum=1, maximum=1_000)
SERVER_HOST: Final = text("server.host", "127.0.0.1", "address to listen on; off loopback TLS is required")
SERVER_PORT: Final = integer(
    "server.port",
    0,
    "port of the coordinator; several tablet servers have those behind it; 0 for any free ones",
    maximum=PORT_MAX,
)
TLS_CERTIFICATE: Final = text("server.tls.certificate", "", "PEM file with the server's certificate chain")
TLS_KEY: Final = text("server.tls.key", "", "PEM file with the certificate's private key")
METRICS_PORT: Final = integer(
    "metrics.reporter.prometheus.port",
    0,
    "loopback port of the metrics; 0 for any free one, -1 for none",
    minimum=-1,
    maximum=PORT_MAX,
)
CLUSTER_OPTIONS: Final[dict[str, Option[Any]]] = {
    option.key: option
    for option in (
        LOG_SEGMENT_FILE_SIZE, LOG_INDEX_INTERVAL_SIZE, LOG_FLUSH_INTERVAL, LOG_RETENTION_CHECK_INTERVAL,
        LOG_DURABILITY, BUCKET_REOPEN_WAIT_MAX, BUCKET_REPORT_INTERVAL, WRITER_ID_EXPIRATION, REQUEST_SIZE_MAX, SERVER_THREADS, SERVER_FETCH_THREADS,
        SERVER_CONNECTIONS_MAX, SERVER_ATTACHED_MAX, DISK_RESERVE, SERVER_GRACE, BUCKETS_MAX, PARTITIONS_MAX, TIERING_HEARTBEAT_TIMEOUT, TIERING_TAKEOVER,
        TIERING_ROUNDS_KEPT,
        UNREAD_SIZE_MAX, CONNECTION_UNREAD_SIZE_MAX, HANDSHAKE_TIMEOUT, CLIENT_TIMEOUT,
        REMOTE_DATA_DIR, *REMOTE_S3_OPTIONS, REMOTE_LOG_INTERVAL, KV_SNAPSHOT_INTERVAL, KV_SNAPSHOTS_RETAINED, KV_ROWS_MEMORY_MAX, SCANNERS_MAX,
        SCANNER_TTL, SCANNER_TTL_CROWDED, FOLDER_GONE_TIMEOUT,
        LOOKUP_KEYS_MAX, AUTO_PARTITION_INTERVAL, SESSION_TIMEOUT, TABLET_SERVERS, SERVER_HOST, SERVER_PORT, TLS_CERTIFICATE, TLS_KEY, METRICS_PORT,
    )
}  # fmt: skip

# -- client options --------------------------------------------------------------------------------------------------

CLIENT_REQUEST_TIMEOUT: Final = duration(
    "client.request-timeout", "30s", "how long a call is retried while no server answers", minimum=1, longest=WAIT_MAX
)
CLIENT_CONNECT_TIMEOUT: Final = duration("client.connect-timeout", "5s", "longest wait for one connection", minimum=1)
WRITER_BATCH_SIZE: Final = size(
    "client.writer.batch-size", "8mb", "largest log batch a writer makes, unless of one row", minimum=1024
)
WRITER_BUFFER_SIZE: Final = size("client.writer.buffer-memory-size", "64mb", "bytes unacknowledged before append waits")
WRITER_STOP_TIMEOUT: Final = duration(
    "client.writer.stop-timeout", "2s", "how long an interrupted write waits for answers under way before it tells"
)
WRITER_DYNAMIC_PARTITIONS: Final = boolean(
    "client.writer.dynamic-create-partition.enabled", True, "create the partition of a row when it does not exist"
)
FETCH_SIZE_MAX: Final = size(
    "client.scanner.log.fetch.max-bytes", "4mb", "bytes of one fetch answer", maximum=MESSAGE_MAX
)
FETCH_WAIT_MAX: Final = duration(
    "client.scanner.log.fetch.wait-max-time", "500ms", "how long a fetch waits for records", longest=WAIT_MAX
)
CLIENT_TLS_CA: Final = text(
    "client.tls.ca", "", "PEM file with the certificates to trust, of a cluster with TLS; empty: the system's"
)
CLIENT_TIME_ZONE: Final = Option(
    "client.time-zone", "", "a time zone like 'Europe/Berlin'", zone_of,
    "the zone of times that are given without one (as_of, seek, ...); empty: the system's",
)  # fmt: skip
DISK_USAGE_TIME: Final = duration(
    "client.disk-usage.time-max", "2s", "how long the disk that a lab takes may be looked up; then it is at least so much",
    minimum=1,
)  # fmt: skip
SPARK_MASTER: Final = text("client.spark.master", "", "Spark's master for the lab; empty: all cores of this machine")
SPARK_START_EARLY: Final = Option(
    "client.spark.start-early", "interactive", "interactive, always or never", choice_of,
    "where a lab begins to start Spark, in the background, when a table of the lake is opened, made or written",
    choices=("interactive", "always", "never"),
)  # fmt: skip
SPARK_CLASS_ARCHIVE: Final = boolean(
    "client.spark.class-archive", True,
    "whether Spark's JVM maps its classes from a file in this user's cache (190 MB, made once in the background)",
)  # fmt: skip
SPARK_TAIL_FILE_SIZE_MAX: Final = size(
    "client.spark.tail-file-size-max", "64mb",
    "records of a log that Spark reads as a file beside the lake's, made with the frame; more are read by tasks in Python",
    minimum=0,
)  # fmt: skip
CLIENT_OPTIONS: Final[dict[str, Option[Any]]] = {
    option.key: option
    for option in (
        CLIENT_REQUEST_TIMEOUT, CLIENT_CONNECT_TIMEOUT, WRITER_BATCH_SIZE, WRITER_BUFFER_SIZE,
        WRITER_DYNAMIC_PARTITIONS, WRITER_STOP_TIMEOUT, FETCH_SIZE_MAX, FETCH_WAIT_MAX, CLIENT_TLS_CA, SPARK_MASTER,
        SPARK_START_EARLY, SPARK_CLASS_ARCHIVE, SPARK_TAIL_FILE_SIZE_MAX, CLIENT_TIME_ZONE, DISK_USAGE_TIME,
    )
}  # fmt: skip


def client_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return checked client options.

    Raises:
        InvalidPropertyError: An unknown or ill-typed option.
    """
    check_options(given, CLIENT_OPTIONS, "client option")
    return dict(given)


def client_time_zone(options: Mapping[str, Any]) -> tzinfo | None:
    """Return the zone of times that are given without one; None: the system's."""
    return time_zone(CLIENT_TIME_ZONE.of(options))


def check_options(values: Mapping[str, Any], known: Mapping[str, Option[Any]], kind: str) -> None:
    """Raise `InvalidPropertyError` for the first unknown key or ill-typed value."""
    for key, value in values.items():
        if (option := known.get(key)) is None:
            raise InvalidPropertyError(_unknown(key, known, kind))
        option.parse(value)


def _unknown(key: str, known: Mapping[str, Option[Any]], kind: str) -> str:
    near = get_close_matches(str(key), known, n=1)
    if key in TABLE_OPTIONS:
        return f"unknown {kind} {key!r}; it is of tables: lab.create_table(..., properties=), table.alter(set=)"
    if key in CLUSTER_OPTIONS or key in CLIENT_OPTIONS:
        return f"unknown {kind} {key!r}; it is of the lab: Lab.open(..., config=), fluss-lab.toml, or `fluss-lab up --option`"
    hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(sorted(known))}"
    return f"unknown {kind} {key!r}{hint}"


def free_prefixes(values: Mapping[str, object]) -> tuple[str, ...]:
    """Return the prefixes under which a table with these properties may have any key: `FREE_PREFIXES`, its format's own."""
    chosen = values.get(DATALAKE_FORMAT.key)
    own = f"{chosen}." if isinstance(chosen, str) and chosen else FREE_PREFIXES[0]
    # Never "table.": what is unknown there is a slip.
    return FREE_PREFIXES if own in FREE_PREFIXES or own == "table." else (*FREE_PREFIXES, own)


def check_properties(values: Mapping[str, object]) -> dict[str, str]:
    """Return a table's properties as strings.

    Args:
        values: Known table options, and anything under ``iceberg.``, ``custom.`` and, where ``table.datalake.format``
            names another format, under that format's name and a dot.
            Booleans and numbers are written as Iceberg and Fluss write them (``true``, ``5``).

    Raises:
        InvalidPropertyError: An unknown key, an ill-typed value, or one too long.
    """
    checked: dict[str, str] = {}
    free = free_prefixes(values)
    for key, value in values.items():
        if not isinstance(key, str) or not isinstance(value, str | bool | int | float):
            raise InvalidPropertyError(f"property {key!r}: expected a string, number or boolean, found {value!r}")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if not is_unicode(key) or not is_unicode(text):
            raise InvalidPropertyError(
                f"property {key[:80]!r}: expected text, found half of a character in {text[:80]!r}"
            )
        if len(key) + len(text.encode()) > PROPERTY_BYTES_MAX:
            raise InvalidPropertyError(f"property {key[:80]!r}: expected at most {PROPERTY_BYTES_MAX} bytes")
        if not (key.startswith(free) and key not in free):
            if (option := TABLE_OPTIONS.get(key)) is None:
                hint = "; your own notes go under 'custom.', the lake format's properties under 'iceberg.'"
                raise InvalidPropertyError(_unknown(key, TABLE_OPTIONS, "property") + hint)
            parsed = option.parse(value)
            if option.kind.startswith("a duration"):
                text = format_duration(parsed) if not isinstance(value, str) else text
        checked[key] = text
    return checked
