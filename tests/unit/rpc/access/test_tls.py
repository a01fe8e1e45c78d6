"""TLS: what is refused without it, who is trusted with it, and a whole cluster that speaks it."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import threading
from pathlib import Path

import grpc
import pytest

import fluss_lab as fl
from fluss_lab.client import Connection, ServerAddress, read_range
from fluss_lab.errors import AuthenticationError, FlussError, InvalidPropertyError, ServerUnavailableError
from fluss_lab.model import OffsetSpec, TableBucket, TablePath, make_descriptor
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.access.tls import Identity, Trust, load_identity
from fluss_lab.rpc.channel import Channel
from fluss_lab.rpc.error_status import error_of
from fluss_lab.rpc.serving.grpc_server import Server
from fluss_lab.server.process.server_node import ServerNode
from fluss_lab.spark.source.source_options import parse_options
from fluss_lab.testing import EmbeddedCluster, ServerProcess
from fluss_lab.workbench.lab_place import server_place

OPENSSL = shutil.which("openssl")
PATIENCE_S = 60.0
needs_openssl = pytest.mark.skipif(OPENSSL is None, reason="no openssl command to make a certificate with")


def certificate(folder: Path, name: str = "lab", alternatives: str | None = "DNS:lab.test", days: int = 2) -> Path:
    """Make a self-signed certificate and its key; return the folder."""
    folder.mkdir(exist_ok=True)
    more = [] if alternatives is None else ["-addext", f"subjectAltName={alternatives}"]
    subprocess.run(
        [str(OPENSSL), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem"), "-days", str(days),
         "-subj", f"/CN={name}", *more],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    if OPENSSL is None:
        pytest.skip("no openssl command to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    certificate(folder)
    certificate(folder, "other")
    return folder


def options(files: Path, name: str = "lab", **more: str) -> dict[str, str]:
    return {
        "server.tls.certificate": str(files / f"{name}.pem"),
        "server.tls.key": str(files / f"{name}.key"),
        **more,
    }


def ping(address: ServerAddress) -> None:
    channel = Channel(address.host, address.port, address.token, trust=address.trust())
    try:
        channel.coordinator().list_databases(pb.ListDatabasesRequest())
    finally:
        channel.close()


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "lab.example.org"])
def test_a_host_off_loopback_is_refused_without_tls_before_anything_is_touched(tmp_path, host):
    with pytest.raises(InvalidPropertyError, match=rf"server.host={host}.*server.tls.certificate"):
        ServerNode(tmp_path / "lab", options={"server.host": host})
    with pytest.raises(ValueError, match="needs TLS"):
        Server(host, 0, "secret", threads=1, request_bytes_max=1 << 20)
    assert not (tmp_path / "lab").exists()


@needs_openssl
def test_half_of_tls_or_files_that_do_not_fit_are_refused(tmp_path, files):
    certificate(files, "nameless", None)
    (files / "text.pem").write_text("no certificate")
    cases = [
        ({"server.tls.certificate": str(files / "lab.pem")}, "server.tls.key is not"),
        ({"server.tls.key": str(files / "lab.key")}, "server.tls.certificate is not"),
        (options(files) | {"server.tls.key": str(files / "other.key")}, "expected a certificate chain and its key"),
        (options(files) | {"server.tls.certificate": str(files / "none.pem")}, "none.pem"),
        (options(files) | {"server.tls.certificate": str(files / "text.pem")}, "text.pem"),
        (options(files, "nameless"), "names no host"),
    ]
    for given, says in cases:
        with pytest.raises(InvalidPropertyError, match=says):
            ServerNode(tmp_path / "lab", options=given)
    assert not (tmp_path / "lab").exists()


@needs_openssl
def test_an_identity_has_the_names_of_its_certificate_and_hides_its_key(tmp_path):
    folder = certificate(tmp_path / "tls", alternatives="DNS:a.test,DNS:*.b.test,IP:127.0.0.1")
    identity = load_identity(folder / "lab.pem", folder / "lab.key")
    assert identity.names == ("a.test", "any.b.test", "127.0.0.1")
    assert identity.trust() == Trust((folder / "lab.pem").read_text(), "a.test")
    assert "PRIVATE" not in repr(identity)
    assert isinstance(identity, Identity)


# -- addresses ---------------------------------------------------------------------------------------------------------


def test_addresses_travel_with_and_without_tls():
    plain = ServerAddress("h", 1, "t")
    assert ServerAddress.from_json('{"host": "h", "port": 1, "token": "t"}') == plain
    assert plain.trust() is None
    secured = ServerAddress("h", 1, "t", True, "PEM", "lab.test")
    assert ServerAddress.from_json(secured.to_json()) == secured
    assert secured.trust() == Trust("PEM", "lab.test")
    assert ServerAddress("h", 1, "t", tls=True).trust() == Trust("", "h")
    assert "PEM" not in repr(secured)


def test_other_servers_of_a_cluster_are_trusted_by_the_name_of_the_first():
    first = ServerAddress("lab.test", 1, "t", True, "PEM")
    assert first.other_server("10.0.0.7", 2) == ServerAddress("10.0.0.7", 2, "t", True, "PEM", "lab.test")
    # One that listens everywhere is where the first is.
    assert first.other_server("0.0.0.0", 2).host == first.other_server("::", 2).host == "lab.test"
    assert ServerAddress("127.0.0.1", 1, "t").other_server("127.0.0.1", 1) == ServerAddress("127.0.0.1", 1, "t")


# -- a cluster that speaks it ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, files):
    """Two tablet servers that listen on every interface."""
    folder = tmp_path_factory.mktemp("secured") / "lab"
    with EmbeddedCluster(folder, options(files, **{"server.host": "0.0.0.0"}), lake=False, tablet_servers=2) as made:
        yield made


def test_a_cluster_off_loopback_serves_those_who_trust_it(cluster):
    assert cluster.address.tls
    admin = cluster.connection.admin()
    admin.create_database("d")
    info = admin.create_table(TablePath("d", "t"), make_descriptor({"id": "bigint"}, buckets=4))
    assert {status.leader for status in admin.buckets(info)} == {0, 1}
    with cluster.connection.append_writer(info.path) as writer:
        for key in range(8):
            writer.append([{"id": key}])
    found = [
        value
        for bucket, end in admin.list_offsets(info, OffsetSpec.latest()).items()
        for run in read_range(cluster.connection, info, TableBucket(info.table_id, None, bucket), 0, end.offset)
        for value in run.rows.column("id").to_pylist()
    ]
    assert sorted(found) == list(range(8))


def test_who_does_not_trust_it_or_is_not_trusted_hears_so_at_once(cluster, files):
    right = cluster.address
    ping(right)
    other = (files / "other.pem").read_text()
    for wrong in (
        ServerAddress(right.host, right.port, right.token, True, other, right.name),
        ServerAddress(right.host, right.port, right.token, True, right.ca, "elsewhere.test"),
        ServerAddress(right.host, right.port, right.token, True, "", right.name),
    ):
        with pytest.raises(AuthenticationError, match="not trusted"):
            ping(wrong)
    with pytest.raises(AuthenticationError, match="token"):
        ping(ServerAddress(right.host, right.port, "wrong", True, right.ca, right.name))
    # Without TLS nothing is understood, least of all the token.
    with pytest.raises(ServerUnavailableError):
        ping(ServerAddress(right.host, right.port, right.token))


@pytest.mark.parametrize("why", ["certificate has expired", "certificate is not yet valid"])
def test_a_certificate_out_of_date_is_not_called_one_to_trust(why):
    """To trust it does not help: whoever sees the error is told what does."""

    class Failure(grpc.RpcError):
        """What gRPC raises then."""

        def code(self):
            return grpc.StatusCode.UNAVAILABLE

        def details(self):
            return f"Tls handshake failed: CERTIFICATE_VERIFY_FAILED: {why}: OK"

        def trailing_metadata(self):
            return ()

    error = error_of(Failure(), "attach at lab.test:1")
    assert isinstance(error, AuthenticationError)
    assert re.search(r"out of date.*server\.tls\.certificate.*`fluss-lab down`", str(error))
    assert "certificates to trust" not in str(error)


def test_every_port_of_it_wants_tls_and_the_token(cluster):
    nodes = cluster.connection.coordinator().metadata(pb.MetadataRequest()).tablet_servers
    assert len(nodes) == 2
    for node in nodes:
        place = cluster.address.other_server(node.host, node.port)
        for address, error in (
            (ServerAddress(place.host, place.port, place.token), ServerUnavailableError),
            (ServerAddress(place.host, place.port, "wrong", True, place.ca, place.name), AuthenticationError),
        ):
            channel = Channel(address.host, address.port, address.token, trust=address.trust())
            with pytest.raises(error):
                channel.tablet_server().describe_buckets(pb.DescribeBucketsRequest(table_id=1))
            channel.close()


@pytest.mark.parametrize("way", ["argument", "option"])
def test_a_lab_is_connected_to_by_the_certificate_to_trust(tmp_path, files, way):
    certificate(tmp_path, alternatives="IP:127.0.0.1")
    with EmbeddedCluster(tmp_path / "lab", options(tmp_path), lake=False) as cluster:
        address = f"127.0.0.1:{cluster.address.port}"
        token, ca = tmp_path / "lab" / "token", tmp_path / "lab.pem"
        given = {"tls_ca": ca} if way == "argument" else {"config": {"client.tls.ca": str(ca)}}
        with fl.Lab.connect(address, token_file=token, **given) as lab:
            assert lab.databases() == []
            # What tasks elsewhere get has the certificates in it, not a path of this machine.
            assert ServerAddress.from_json(lab.connection.address.to_json()).ca == ca.read_text()
        with pytest.raises(AuthenticationError, match="not trusted"):
            fl.Lab.connect(address, token_file=token, tls_ca=files / "other.pem")
        with pytest.raises(ServerUnavailableError, match=r"connection was closed .*speaks TLS.*tls_ca"):
            fl.Lab.connect(address, token_file=token, config={"client.request-timeout": "100ms"})
        for name, text in (
            ("none", None),
            ("empty", ""),
            ("key", (tmp_path / "lab.key").read_text()),
            ("cut", ca.read_text()[:99]),
        ):
            if text is not None:
                (tmp_path / f"{name}.pem").write_text(text)
            with pytest.raises(InvalidPropertyError, match=rf"client\.tls\.ca=.*{name}\.pem.*certificates to trust"):
                fl.Lab.connect(address, token_file=token, tls_ca=tmp_path / f"{name}.pem")


def test_the_certificates_to_trust_are_found_from_any_working_directory(tmp_path, files, monkeypatch):
    certificate(tmp_path, alternatives="IP:127.0.0.1")
    (tmp_path / "ca.pem").write_text("# Z\u00fcrich\n" + (tmp_path / "lab.pem").read_text(), encoding="utf-8")
    with EmbeddedCluster(tmp_path / "lab", options(tmp_path), lake=False) as cluster:
        address, token = f"127.0.0.1:{cluster.address.port}", tmp_path / "lab" / "token"
        monkeypatch.setenv("HOME", str(tmp_path))
        for ca in ("ca.pem", "~/ca.pem"):
            monkeypatch.chdir(tmp_path)
            place = server_place(address, token, None, ca, None)
            with place.connection:
                monkeypatch.chdir(files)
                found = parse_options({"table": "d.t", **place.options}).place.given
                assert found == place.connection.address
                assert "rich" not in found.ca


@needs_openssl
def test_a_key_beside_the_certificates_is_told_nobody(tmp_path):
    """One file of both is common; clients and Spark's tasks get the certificates of it."""
    folder = certificate(tmp_path / "tls", alternatives="IP:127.0.0.1")
    both = folder / "both.pem"
    both.write_text((folder / "lab.pem").read_text() + (folder / "lab.key").read_text())
    with ServerProcess(
        tmp_path / "lab", {"server.tls.certificate": str(both), "server.tls.key": str(both)}, tablet_servers=2
    ) as server:
        assert server.connection.admin().databases() == []
        written = [path for path in (tmp_path / "lab").rglob("*") if path.is_file()]
        assert [path.name for path in written if b"PRIVATE KEY" in path.read_bytes()] == []
        address = f"127.0.0.1:{server.address.port}"
        with fl.Lab.connect(address, token_file=tmp_path / "lab" / "token", tls_ca=both) as lab:
            assert "PRIVATE KEY" not in lab.connection.address.to_json() + server.connection.address.to_json()


def test_a_place_elsewhere_is_never_sent_the_token_in_the_open(tmp_path):
    """Whoever sits at the address hears a handshake of TLS, unless it was said that there is none."""
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("very-secret")
    with socket.create_server(("127.0.0.2", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        port = listener.getsockname()[1]
        connection: list[bytes] = []

        def hear() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.settimeout(PATIENCE_S)
                connection.append(peer.recv(4096))

        hearing = threading.Thread(target=hear)
        hearing.start()
        with pytest.raises(FlussError):
            fl.Lab.connect(f"127.0.0.2:{port}", token_file=token, config={"client.request-timeout": "1s"})
        hearing.join(PATIENCE_S)
    assert connection[0][:1] == b"\x16"  # a TLS handshake record
    assert b"very-secret" not in connection[0]


@needs_openssl
def test_processes_of_a_cluster_speak_it_among_themselves(tmp_path, files):
    with ServerProcess(
        tmp_path / "lab", options(files, **{"server.host": "0.0.0.0"}), tablet_servers=2,
        client={"client.request-timeout": "120s"},
    ) as server:  # fmt: skip
        admin = server.connection.admin()
        admin.create_database("d")
        info = admin.create_table(TablePath("d", "t"), make_descriptor({"id": "bigint"}, buckets=2))
        with server.connection.append_writer(info.path) as writer:
            writer.append([{"id": 1}]).result(PATIENCE_S)
            server.kill_tablet(0)
            server.kill_tablet(1)
            writer.append([{"id": 2}]).result(PATIENCE_S)
        assert sum(each.end_offset for each in admin.buckets(info)) == 2
        for name in ("server.json", "server.log", "tablet-1.log", "server-options.json"):
            assert "PRIVATE KEY" not in (server.folder / name).read_text()
        with fl.Lab.open(tmp_path / "lab") as lab:
            assert lab.tables("d") == ["t"]


def test_a_connection_hides_the_certificates_it_trusts():
    connection = Connection(lambda: ServerAddress("h", 1, "secret", True, "PEM"))
    assert "PEM" not in repr(connection) + repr(connection.address)
    assert "secret" not in repr(connection) + repr(connection.address)
