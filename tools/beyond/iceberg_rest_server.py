"""Apache Iceberg's own REST server, the one of its tests, over its JDBC catalog: a catalog in Java that keeps all of Iceberg's metadata."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pyspark

from fluss_lab.closing import Closing
from tools.beyond.minio_server import REGION, MinioServer, answers
from tools.beyond.part_process import PartFolder, PartProcess, free_port
from tools.beyond.pinned_parts import PartUnavailableError, java_compiler, maven_jars

SOURCE: Final = Path(__file__).with_name("IcebergRestServer.java")
VERSION: Final = "1.10.0"
#: What it consists of, by its path in Maven's repository, with its SHA-256.
JARS: Final = {
    "org/apache/iceberg/iceberg-api/1.10.0/iceberg-api-1.10.0.jar": "627061d401dba9d1a8cada2da6394640c2e803102bb676fb34e5f65503cf2c51",
    "org/apache/iceberg/iceberg-core/1.10.0/iceberg-core-1.10.0.jar": "54091489dbdcb31b5a4514372abfc908a7b0be69f76e785f1e82279be4fbd6cc",
    "org/apache/iceberg/iceberg-core/1.10.0/iceberg-core-1.10.0-tests.jar": "caa79473e760a6ea0740888832d85868359142640d34f472cd565763bb9b90c7",
    "org/apache/iceberg/iceberg-common/1.10.0/iceberg-common-1.10.0.jar": "5ce6ec8262b4c6f8151d9e36ebe013bd23ec0f310508173f72c43bc073d5f519",
    "org/apache/iceberg/iceberg-bundled-guava/1.10.0/iceberg-bundled-guava-1.10.0.jar": "05b79072e19071b1bcf7a4e382d624b3b2ccad6eaf79627676219bb48e4e834d",
    "org/apache/iceberg/iceberg-aws/1.10.0/iceberg-aws-1.10.0.jar": "fe9b8980fb79f6a89e94c6c8f61453f723403fdf00a9813e92d4a5954587c22a",
    "org/apache/iceberg/iceberg-aws-bundle/1.10.0/iceberg-aws-bundle-1.10.0.jar": "172370cfc32a5f1ae5399b210e86fc04a366dc29a112d97ac8ffc74df7525596",
    "com/github/ben-manes/caffeine/caffeine/2.9.3/caffeine-2.9.3.jar": "1e0a7bbef1dd791653143f3f05d0e489934bf5481e58a87c9e619cd46b68729b",
    "org/apache/httpcomponents/client5/httpclient5/5.5/httpclient5-5.5.jar": "496b4b0e8d5f3a8139a5d2638486d304758bac3a9c39d76989f663cfd9354fc9",
    "org/apache/httpcomponents/core5/httpcore5/5.3.4/httpcore5-5.3.4.jar": "f2b2fd7a0164e8c3120cd8437bc9fea439239e165c17262b3e907daa7e979f80",
    "dev/failsafe/failsafe/3.3.2/failsafe-3.3.2.jar": "2c5dc879a6dac7ea3a7b29d795e27bd49b8e7908b05c2f3e56053c19d79850f5",
    "org/xerial/sqlite-jdbc/3.50.3.0/sqlite-jdbc-3.50.3.0.jar": "a3f53a2aa15ae9425a9e793bbe9c8e5288febeb4b65ef5c1a4e80d4c2045cf08",
    "org/eclipse/jetty/jetty-server/12.0.23/jetty-server-12.0.23.jar": "c3f0241496a1c71c7050bcd9de0531e66ec09087ffecd9ba951fe33f2456cf42",
    "org/eclipse/jetty/jetty-http/12.0.23/jetty-http-12.0.23.jar": "2abcaace6620fc33ae1858009079baa801702990eec664b8847722206945589d",
    "org/eclipse/jetty/jetty-io/12.0.23/jetty-io-12.0.23.jar": "6974d8e9be69d39b2c0308d44699cef0d96132bbb636abf0e1226184b66b1b5e",
    "org/eclipse/jetty/jetty-util/12.0.23/jetty-util-12.0.23.jar": "742518cb7ce7151fa2b6c54819e9b65204c0f9da1193812261fa5655618e2c97",
    "org/eclipse/jetty/jetty-session/12.0.23/jetty-session-12.0.23.jar": "ab37362935611b8f855c8bcddea97cd6fcd7e4f46aaa05b425a53926503c5e20",
    "org/eclipse/jetty/jetty-security/12.0.23/jetty-security-12.0.23.jar": "b4e4c14f8c1bfd0a4939adada33ea7449199b2523d00d211488ff81799bb3c0c",
    "org/eclipse/jetty/jetty-ee/12.0.23/jetty-ee-12.0.23.jar": "a999919775315dc099dfd900e4562fd8de36034f3cef4184ddb0b16be3c3659e",
    "org/eclipse/jetty/ee10/jetty-ee10-servlet/12.0.23/jetty-ee10-servlet-12.0.23.jar": "49697e659c72b544638e7e2220c85ce006045da57655375223b9239bcb170f1f",
}
#: Of pyspark's jars, by how their names begin: libraries that it shares with Spark.
_SHARED: Final = (
    "avro-1", "jackson-annotations-", "jackson-core-2", "jackson-databind-2", "slf4j-api-", "RoaringBitmap-", "aircompressor-",
    "jakarta.servlet-api-6", "hadoop-client-api-", "hadoop-client-runtime-",
)  # fmt: skip


class IcebergRestServer(Closing):
    """A running server on loopback with as many catalogs as are asked for, whose tables lie in a MinIO. Use it as a context manager.

    What it knows stays on the disk while the object lives: it may be killed and started again.

    Args:
        minio: Where tables lie.
        location: Of the warehouses, such as ``s3://lake``; its bucket must be there.
        store_endpoint: The URL at which it reaches `minio`, when that is a proxy's.
        folder: Where its data are, and the log; it stays. None: a temporary one.
        port: Where it listens; None: a free one.

    Raises:
        PartUnavailableError: Its jars or a Java that compiles cannot be had.
        PartFailedError: It did not start.
    """

    def __init__(
        self,
        minio: MinioServer,
        location: str,
        *,
        store_endpoint: str | None = None,
        folder: Path | None = None,
        port: int | None = None,
    ) -> None:
        java, jars = java_compiler(), [*iceberg_rest_jars(), *_shared_jars()]
        self.port = port or free_port()
        self._minio = minio
        place = PartFolder("iceberg-rest", folder)
        settings = {
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            # A file of each catalog's own, and one connection to it: see `IcebergRestServer.java`.
            "uri": f"jdbc:sqlite:{place.path}/%s.db?journal_mode=WAL",
            "clients": "1",
            "jdbc.schema-version": "V1",
            "warehouse": location.rstrip("/"),
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "client.region": REGION,
            "s3.endpoint": store_endpoint or minio.endpoint,
            "s3.path-style-access": "true",
            "s3.access-key-id": minio.access_key,
            "s3.secret-access-key": minio.secret_key,
        }
        command = [
            str(java), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", os.pathsep.join(map(str, jars)),
            str(SOURCE), str(self.port),
        ]  # fmt: skip
        env = {f"CATALOG:{key}": value for key, value in settings.items()}
        self.process = PartProcess("iceberg-rest", command, place, self._is_ready, env=env)
        self.process.launch()

    def uri(self, catalog: str) -> str:
        """Return the URL of a catalog, which is empty when it is asked for the first time."""
        return f"http://127.0.0.1:{self.port}/{catalog}"

    def lake_options(self, catalog: str, uri: str | None = None) -> dict[str, str]:
        """Return the properties of a catalog for pyiceberg, with those of the store.

        Args:
            catalog: Its name.
            uri: Of a proxy before it, with the catalog's name; None: its own.
        """
        return {"type": "rest", "uri": uri or self.uri(catalog), **self._minio.lake_options()}

    def close(self) -> None:
        """End it."""
        self.process.close()

    def _is_ready(self) -> bool:
        return answers(f"{self.uri('ready')}/v1/config")


def iceberg_rest_jars() -> list[Path]:
    """Return the jars of Maven Central that it consists of, fetched once.

    Raises:
        PartUnavailableError: One cannot be fetched, or is another file.
    """
    return maven_jars(f"iceberg-rest-{VERSION}", JARS)


def _shared_jars() -> list[Path]:
    folder = Path(pyspark.__file__).parent / "jars"
    found = [jar for name in _SHARED for jar in sorted(folder.glob(f"{name}*.jar"))]
    if len(found) < len(_SHARED):
        raise PartUnavailableError(
            f"Iceberg's REST server: expected {', '.join(_SHARED)} in {folder}, found {len(found)} jars"
        )
    return found
