"""Options of the data source `fluss`: which cluster they mean, and what is said of those that cannot be read."""

import pytest

from fluss_lab.client import ServerAddress
from fluss_lab.errors import AuthenticationError, FlussError, InvalidPropertyError, ServerUnavailableError
from fluss_lab.model import TablePath
from fluss_lab.read.moment.read_point import PointBucket, ReadPoint
from fluss_lab.rpc.access.token import write_token
from fluss_lab.server.process import discovery
from fluss_lab.spark.source.source_options import READ_OPTIONS, SEVERAL, own_options, parse_options, place_options

SERVER = {"server": "127.0.0.1:9", "token": "t0ken"}
POINT = ReadPoint(TablePath("nyc", "flights"), 3, 1, 5, False, None, (PointBucket(None, None, 0, 0, 4),))


def parsed(**options):
    given = {name.replace("_", "."): text for name, text in options.items()}
    return parse_options({"table": "nyc.flights", **SERVER, **given})


def test_a_server_is_named_with_its_token(tmp_path):
    write_token(tmp_path / "token", "secret")
    found = parse_options({"Table": "nyc.flights", "SERVER": "[::1]:77", "token.file": str(tmp_path / "token")})
    assert found.table == TablePath("nyc", "flights")
    assert found.place.address() == ServerAddress("::1", 77, "secret")
    assert "secret" not in repr(found)
    with pytest.raises(AuthenticationError):
        parse_options({"table": "a.b", "server": "h:1", "token.file": str(tmp_path / "nothing")})


#: Of nobody; that it is over by now does not matter to who only reads it.
PEM = """\
-----BEGIN CERTIFICATE-----
MIIBczCCARmgAwIBAgIUeW6ppm5i4NZdXkbRjiKn4P5gMlkwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEcm9vdDAeFw0yNjExMjgyMzIxNDZaFw0yNjEyMjgyMzIxNDZa
MA8xDTALBgNVBAMMBHJvb3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARo4rlq
760Ok7xHW11YSDmhVFIwZEp1umzcEaGUV9Enumfe1wN+WEaPEKW/zUAleK4rx9Dv
cGcwMy5GRJAqYyfWo1MwUTAdBgNVHQ4EFgQUcudq5twPGiI6nk6WSPH7vOThySgw
HwYDVR0jBBgwFoAUcudq5twPGiI6nk6WSPH7vOThySgwDwYDVR0TAQH/BAUwAwEB
/zAKBggqhkjOPQQDAgNIADBFAiEA3mEh5vcBmLSu3PuBMkUGH/gSosQ85ew7a9KF
Dc7W5esCIC1VJ4+cYK8KwGcAfnl5LQw+nFhligo9dgM/Pqs6zaXl
-----END CERTIFICATE-----
"""


def test_tls_is_as_for_a_lab(tmp_path):
    (tmp_path / "ca.pem").write_text(PEM)
    (tmp_path / "text.pem").write_text("PEM")
    assert parsed(server="lab.example.org:1").place.address() == ServerAddress("lab.example.org", 1, "t0ken", True)
    assert not parsed(server="lab.example.org:1", tls="false").place.address().tls
    assert parsed(tls_ca=str(tmp_path / "ca.pem")).place.address() == ServerAddress("127.0.0.1", 9, "t0ken", True, PEM)
    for name in ("nothing", "text.pem"):
        with pytest.raises(InvalidPropertyError, match=rf"option tls\.ca=.*{name}.*certificates to trust"):
            parsed(tls_ca=str(tmp_path / name))


@pytest.mark.parametrize(
    "address",
    [ServerAddress("h", 1, "t"), ServerAddress("h", 1, "t", True), ServerAddress("h", 1, "t", True, "PEM", "name")],
)
def test_an_address_that_was_found_is_reported_by_options(address):
    assert parse_options({"table": "a.b", **place_options(address)}).place.address() == address


def test_a_folder_s_server_is_looked_up_each_time(tmp_path):
    found = parse_options({"table": "a.b", "lab": str(tmp_path)})
    with pytest.raises(ServerUnavailableError, match="no server runs there"):
        found.place.address()
    write_token(tmp_path / "token", "s")
    for port in (5, 6):
        entry = discovery.ServerEntry(1, "127.0.0.1", port, str(tmp_path / "token"), ("coordinator",), 0)
        discovery.write(tmp_path, entry, ephemeral=True)
        assert found.place.address() == ServerAddress("127.0.0.1", port, "s")


def test_a_session_s_own_cluster_is_meant_unless_another_is_named(tmp_path):
    defaults = {"lab": "/data/lab", "client.request-timeout": "5s", "client.connect-timeout": "1s"}
    found = parse_options({"table": "a.b", "client.connect-timeout": "2s"}, defaults)
    assert str(found.place.folder) == "/data/lab"
    assert found.client == {"client.request-timeout": "5s", "client.connect-timeout": "2s"}
    other = parse_options({"table": "a.b", **SERVER}, defaults)
    assert other.place.folder is None
    assert other.client == {}
    with pytest.raises(InvalidPropertyError, match=r"which lab\? /a, /b are open in this process .* option lab"):
        parse_options({"table": "a.b"}, {SEVERAL: "/a, /b"})
    assert parse_options({"table": "a.b", **SERVER}, {SEVERAL: "/a, /b"}).place == other.place


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "expected the option table"),
        ({"table": "a.b"}, "which cluster"),
        ({"table": "a.b", "lab": ".", **SERVER}, "found both"),
        ({"table": "a.b", "lab": "no/lab"}, "option lab: expected a lab's folder, found nothing at /.*/no/lab"),
        ({"table": "a.b", "server": "nowhere", "token": "t"}, "host:port"),
        ({"table": "a.b", "server": "h:1"}, "token.file"),
        ({"table": "a.b", "token": "t"}, "expected lab or server beside token"),
        ({"table": "a", **SERVER}, "database.table"),
    ],
)
def test_what_does_not_name_a_table_of_a_cluster_is_refused(options, message):
    with pytest.raises(FlussError, match=message):
        parse_options(options)


def test_values_are_read_and_checked():
    found = parsed(
        columns="a, b", partitions='["x,y"]', buckets="1,2", limit="7", net="TRUE", as_of="17", start="earliest"
    )
    assert (found.names("columns"), found.names("partitions")) == (["a", "b"], ["x,y"])
    assert (found.numbers("buckets"), found.number("limit"), found.flag("net")) == ([1, 2], 7, True)
    assert (found.moment("as.of"), found.edge("start"), found.edge("end")) == (17, "earliest", None)
    assert parsed(buckets="[]", partitions="[]").numbers("buckets") == []
    assert parsed(start='{"0": 5}').edge("start") == {0: 5}
    assert parsed(start='{"a/b/1": 5}').edge("start") == {("a/b", 1): 5}
    assert parsed(start=POINT.to_json()).edge("start") == POINT
    assert parsed(read_point=POINT.to_json()).read_point() == POINT
    for name, text, read in (
        ("limit", "-1", lambda o: o.number("limit")),
        ("buckets", "1,x", lambda o: o.numbers("buckets")),
        ("net", "yes", lambda o: o.flag("net")),
        ("columns", "[1]", lambda o: o.names("columns")),
        ("start", '{"x": 1}', lambda o: o.edge("start")),
        ("start", "{", lambda o: o.edge("start")),
    ):
        with pytest.raises(InvalidPropertyError, match=f"option {name}"):
            read(parsed(**{name: text}))


def test_an_option_that_nobody_reads_is_refused():
    parsed(columns="a").check(READ_OPTIONS, "reading")
    with pytest.raises(InvalidPropertyError, match="no option 'colums'"):
        parsed(colums="a").check(READ_OPTIONS, "reading")


def test_a_path_names_the_table_and_what_a_catalog_adds_is_passed_over():
    given = {
        "path": "nyc.flights",
        **SERVER,
        "owner": "me",
        "provider": "fluss",
        "option.table": "x",
        "Where": "id = 1",
    }
    found = parse_options(given)
    assert found.table == TablePath("nyc", "flights")
    assert found.values == {"where": "id = 1"}
    assert own_options(given) == {"path": "nyc.flights", "server": "127.0.0.1:9", "where": "id = 1"}
