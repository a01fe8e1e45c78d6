"""Lake options: which keys exist under ``datalake.``, and which a file reader needs.

``datalake.format`` names the format of the cluster's lake; ``datalake.<format>.<key>`` configures it. The keys of Iceberg are
those of pyiceberg's catalogs and file systems (a test compares this table with the installed pyiceberg), so a misspelt one is
refused instead of ignored. Another format is a package of its own; any key is taken under its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from fluss_lab.errors import InvalidPropertyError

#: Under this prefix are the options of the lake.
LAKE_PREFIX: Final = "datalake."
FORMAT_KEY: Final = "datalake.format"
FORMAT_DEFAULT: Final = "iceberg"
_ICEBERG_PREFIX: Final = f"{LAKE_PREFIX}{FORMAT_DEFAULT}."

#: Keys of Iceberg's catalogs, without prefix, and what they mean.
_CATALOG: Final[dict[str, str]] = {
    "name": "what the catalog is called in its own tables and in messages",
    "type": "kind of catalog: sql, rest, hive, glue, dynamodb, bigquery",
    "uri": "where the catalog is: a database URL, or the address of a service",
    "warehouse": "where tables are put, or the name of a warehouse in a REST catalog",
    "py-catalog-impl": "a catalog class of one's own",
    "py-io-impl": "a file access class of one's own",
    "credential": "OAuth2 client id and secret of a REST catalog, as id:secret",
    "token": "bearer token of a REST catalog",
    "scope": "OAuth2 scope",
    "audience": "OAuth2 audience",
    "resource": "OAuth2 resource",
    "oauth2-server-uri": "where OAuth2 tokens are had",
    "prefix": "path prefix of a REST catalog",
    "snapshot-loading-mode": "all: which snapshots a REST catalog returns; others are refused",
    "scan-planning-mode": "client or server",
    "view-endpoints-supported": "whether a REST catalog that does not say so has views",
    "rest-page-size": "entries of one page of a REST catalog's lists",
    "namespace-separator": "what parts the levels of a namespace in a REST catalog's paths",
    "rest.client.connection-timeout-ms": "longest wait for a connection to a REST catalog, 10000 by default",
    "rest.client.socket-timeout-ms": "longest wait for an answer of a REST catalog, 60000 by default",
    "rest.sigv4-enabled": "sign calls of a REST catalog by AWS SigV4",
    "rest.signing-region": "region of the signature",
    "rest.signing-name": "service of the signature",
    "rest.sigv4.max-retries": "retries of signed calls",
    "echo": "log the statements of a SQL catalog",
    "init_catalog_tables": "make the tables of a SQL catalog when they are absent",
    "pool_pre_ping": "test connections of a SQL catalog before use",
    "schema_version": "version of a SQL catalog's tables",
    "hive.hive2-compatible": "speak to Hive 2",
    "hive.kerberos-authentication": "authenticate at Hive by Kerberos",
    "hive.kerberos-service-name": "Kerberos service of Hive",
    "ugi": "user and group at Hive",
    "lock-check-min-wait-time": "shortest wait for a Hive lock",
    "lock-check-max-wait-time": "longest wait for a Hive lock",
    "lock-check-retries": "tries for a Hive lock",
    "table-name": "DynamoDB table of the catalog",
    "location": "default location",
    "gcp.bigquery.project-id": "BigQuery project",
    "gcp.bigquery.location": "BigQuery location",
    "gcp.bigquery.credential-file": "file with BigQuery credentials",
    "gcp.bigquery.credentials-info": "BigQuery credentials",
}
#: How long a REST catalog is waited for, as Iceberg's Java client calls it: the key and its default, milliseconds. A commit of a
#: thousand snapshots is answered within a second; pyiceberg itself would wait for ever.
REST_CONNECT_MS: Final = ("rest.client.connection-timeout-ms", 10_000)
REST_ANSWER_MS: Final = ("rest.client.socket-timeout-ms", 60_000)
#: Keys of services by their prefix, without it.
_SERVICES: Final[dict[str, str]] = {
    "glue.": "id skip-archive endpoint profile-name region access-key-id secret-access-key session-token max-retries retry-mode",
    "dynamodb.": "profile-name region access-key-id secret-access-key session-token",
}
#: Keys of file systems by their prefix, without it.
_FILE_SYSTEMS: Final[dict[str, str]] = {
    "client.": "profile-name region access-key-id secret-access-key session-token role-arn role-session-name",
    "s3.": (
        "profile-name anonymous endpoint access-key-id secret-access-key session-token region resolve-region proxy-uri "
        "connect-timeout request-timeout signer signer.uri signer.endpoint role-arn role-session-name "
        "force-virtual-addressing retry-strategy-impl server-side-encryption sse-kms-key-id"
    ),
    "hdfs.": "host port user kerberos_ticket",
    "adls.": (
        "connection-string credential account-name account-key sas-token tenant-id client-id client-secret account-host "
        "blob-storage-authority dfs-storage-authority blob-storage-scheme dfs-storage-scheme token anon"
    ),
    "gcs.": (
        "oauth2.token oauth2.token-expires-at project-id access consistency cache-timeout requester-pays session-kwargs "
        "service.host default-bucket-location version-aware"
    ),
    "hf.": "endpoint token",
}
#: Other keys that reading and writing files goes by.
_FILE_KEYS: Final = frozenset({"py-io-impl", "buffer-size"})
#: Where the file access class that is used by default comes from.
_HOUSE: Final = "fluss_lab."
#: What a signer of S3 requests asks its REST catalog with.
_SIGNER_KEYS: Final = frozenset({"uri", "token", "credential"})
#: Prefixes of Iceberg under which any key is taken: headers, and what depends on the way of authentication.
_FREE: Final = ("header.", "auth.", "ssl.")

#: Classes of a person's own, which may have keys of their own.
_OWN_CLASSES: Final = ("py-catalog-impl", "py-io-impl")

#: Every Iceberg option, by its full key.
ICEBERG_OPTIONS: Final[dict[str, str]] = {
    **{f"{_ICEBERG_PREFIX}{key}": meaning for key, meaning in _CATALOG.items()},
    **{
        f"{_ICEBERG_PREFIX}{prefix}{key}": f"{prefix.removesuffix('.')}: {key.replace('-', ' ')}"
        for prefix, keys in {**_SERVICES, **_FILE_SYSTEMS}.items()
        for key in keys.split()
    },
}
_KNOWN: Final = (FORMAT_KEY, *ICEBERG_OPTIONS)


def lake_format(values: Mapping[str, str]) -> str:
    """Return the format of the lake that options configure."""
    return str(values.get(FORMAT_KEY, FORMAT_DEFAULT))


def check_lake_options(values: Mapping[str, str], sources: Mapping[str, str] | None = None) -> None:
    """Check the lake options among some options.

    Args:
        values: Options, others among them.
        sources: Where each key stands, for the message.

    Raises:
        InvalidPropertyError: One is unknown, or of another format than the lake's; the text has the key that was
            probably meant.
    """
    own = f"{LAKE_PREFIX}{lake_format(values)}."
    for key in values:
        if not key.startswith(LAKE_PREFIX) or key == FORMAT_KEY:
            continue
        where = f"{sources[key]}: " if sources else ""
        if not key.startswith(own) or key == own:
            raise InvalidPropertyError(
                f"{where}unknown option {key!r}: expected {FORMAT_KEY}, or an option of the lake's format, {own}*{_hint(key)}"
            )
        if own == _ICEBERG_PREFIX and not _is_known(key, values):
            raise InvalidPropertyError(f"{where}unknown option {key!r}{_hint(key)}")


def _is_known(key: str, values: Mapping[str, str]) -> bool:
    is_free = any(f"{_ICEBERG_PREFIX}{name}" in values for name in _OWN_CLASSES)
    return is_free or key in ICEBERG_OPTIONS or key.removeprefix(_ICEBERG_PREFIX).startswith(_FREE)


def _hint(key: str) -> str:
    near = get_close_matches(key, _KNOWN, n=1, cutoff=0.75)
    return f"; did you mean {near[0]!r}?" if near else "; `fluss-lab config --all` shows every option"


def with_defaults(values: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """Return options with the default lake filled in where they leave it open.

    A key that is given counts before its default. Of a catalog of another kind than the default's, and of another format,
    nothing is filled in but the name: its place and its warehouse are its own.

    Args:
        values: Options, those of the lake among them.
        defaults: The default lake's options: an Iceberg SQL catalog and a warehouse.
    """
    if lake_format(values) != FORMAT_DEFAULT:
        return dict(values)
    filled = dict(defaults)
    uri, kind = values.get(f"{_ICEBERG_PREFIX}uri"), values.get(f"{_ICEBERG_PREFIX}type")
    is_default_kind = kind in {None, "sql"} and f"{_ICEBERG_PREFIX}py-catalog-impl" not in values
    if not is_default_kind or (uri is not None and kind is None):
        # pyiceberg infers the kind from the address.
        filled.pop(f"{_ICEBERG_PREFIX}type")
    is_sql = is_default_kind and (uri is None or kind == "sql" or not uri.startswith(("http", "thrift")))
    if not is_sql:
        filled.pop(f"{_ICEBERG_PREFIX}uri")
        filled.pop(f"{_ICEBERG_PREFIX}warehouse")
    return {**values, **{key: value for key, value in filled.items() if key not in values}}


def file_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return of a catalog's properties (without prefix) those with which files are read and written, and no others.

    A task of Spark gets these: credentials of the file system among them, those of the catalog not, unless requests to
    the file system are signed by the catalog. With a file access class of one's own (``py-io-impl``) it gets all.
    """
    if not properties.get("py-io-impl", _HOUSE).startswith(_HOUSE):
        return dict(properties)  # what a class of one's own needs is not known
    prefixes = tuple(_FILE_SYSTEMS)
    signer = _SIGNER_KEYS if "s3.signer" in properties else frozenset()
    return {
        key: value
        for key, value in properties.items()
        if key.startswith(prefixes) or key in _FILE_KEYS or key in signer
    }
