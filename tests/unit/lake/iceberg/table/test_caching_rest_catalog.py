"""The REST catalog as the lake uses it: metadata parsed once, waits that end, tokens renewed, nothing asked needlessly."""

import threading
import time

import pyarrow as pa
import pytest
from pyiceberg.table.metadata import TableMetadataUtil

from fluss_lab.errors import AuthenticationError, InvalidPropertyError, ServerUnavailableError
from fluss_lab.lake.iceberg.table.catalog_access import CatalogAccess
from tests.unit.lake.iceberg.commit.test_rest_commits import COLUMNS, RestLake
from tests.unit.lake.rest_server import Fault, RestServer

pytestmark = pytest.mark.slow


@pytest.fixture
def rest(tmp_path):
    with RestServer(tmp_path / "rest") as found:
        yield found


def test_the_metadata_of_a_location_is_parsed_once(rest, monkeypatch):
    parsed = []
    real = TableMetadataUtil.parse_raw

    def counting(text):
        # The server parses too, in threads of its own.
        parsed.extend([1] if threading.current_thread() is threading.main_thread() else [])
        return real(text)

    monkeypatch.setattr(TableMetadataUtil, "parse_raw", counting)
    lake = RestLake(rest)
    info = lake.table(COLUMNS)
    lake.append(info, pa.record_batch({"id": [1]}))
    parsed.clear()
    # What the commit answered is what the loads after it have.
    assert lake.load(info).metadata is lake.load(info).metadata
    assert len(lake.load(info).metadata.snapshots) == 2  # the first one is empty
    assert parsed == []
    RestLake(rest).append(info, pa.record_batch({"id": [2]}), 1)
    fresh = lake.load(info)
    assert len(fresh.metadata.snapshots) == 3
    assert fresh.metadata == RestLake(rest).load(info).metadata


@pytest.mark.parametrize("kind", ["config", "load table"])
def test_a_server_that_does_not_answer_is_waited_for_as_long_as_was_said(rest, kind):
    lake = RestLake(rest)
    info = lake.table(COLUMNS)
    access = CatalogAccess(rest.client(**{"rest.client.socket-timeout-ms": "100"}))
    rest.faults = [Fault(kind, 500, wait_s=1.0) for _ in range(3)]
    started = time.monotonic()
    with pytest.raises(ServerUnavailableError, match=r"does not answer.*[Tt]ime"):
        access.load_table(info.path)
    assert time.monotonic() - started < 2.5


@pytest.mark.parametrize("status", [503, 502, 429, None])
def test_what_only_reads_is_asked_again(rest, status):
    lake = RestLake(rest)
    info = lake.table(COLUMNS)
    rest.faults = [Fault("load table", status), Fault("load table", status)]
    assert lake.load(info).location()
    rest.faults = [Fault("load table", status) for _ in range(3)]
    with pytest.raises(Exception, match="catalog"):
        lake.load(info)
    assert rest.faults == []


def test_a_token_that_ends_is_renewed_by_the_credentials(rest):
    rest.credential = "me:right"
    lake = RestLake(rest)
    info = lake.table(COLUMNS)
    rest.counts.clear()
    rest.expire_tokens()
    assert lake.load(info).location()
    assert rest.counts == {"load table": 2, "token": 1}
    with pytest.raises(AuthenticationError, match="refused the credentials"):
        RestLake(rest, credential="me:wrong").load(info)


def test_a_bearer_token_is_used_as_it_is_and_its_end_is_said(rest):
    lake = RestLake(rest, token="token-1")
    rest.credential, rest.tokens = "me:right", {"token-1"}
    info = lake.table(COLUMNS)
    assert rest.seen[-1]["Authorization"] == "Bearer token-1"
    rest.expire_tokens()
    with pytest.raises(AuthenticationError, match="refused the credentials") as caught:
        lake.load(info)
    assert "token-1" not in str(caught.value)


def test_prefix_and_headers(rest):
    rest.prefix = "mine"
    lake = RestLake(rest, **{"header.X-Iceberg-Access-Delegation": "remote-signing", "header.X-Mine": "yes"})
    info = lake.table(COLUMNS)
    assert lake.load(info).location()
    assert rest.seen[-1]["X-Iceberg-Access-Delegation"] == "remote-signing"
    assert rest.seen[-1]["X-Mine"] == "yes"


def test_a_table_without_its_older_snapshots_is_no_base_for_tiering():
    with pytest.raises(InvalidPropertyError, match="snapshot-loading-mode: expected all, found 'refs'"):
        CatalogAccess({"type": "rest", "uri": "http://x", "snapshot-loading-mode": "refs"})


def test_ways_of_authentication_are_taken_from_flat_options(rest):
    """pyiceberg reads them as mappings, which options are not: they would be accepted and do nothing."""
    lake = RestLake(rest, **{"auth.type": "basic", "auth.basic.username": "me", "auth.basic.password": "right"})
    lake.table(COLUMNS)
    assert rest.seen[-1]["Authorization"] == "Basic bWU6cmlnaHQ="
    with pytest.raises(InvalidPropertyError, match="'basic' has a value of its own"):
        CatalogAccess(rest.client(**{"auth.basic": "x", "auth.basic.username": "me"})).catalog()


def test_vended_credentials_reach_tasks_and_the_catalogs_do_not(rest):
    issued = []

    def vend() -> dict[str, str]:
        issued.append(1)
        return {"s3.access-key-id": f"id{len(issued)}", "s3.secret-access-key": "vended", "s3.session-token": "short"}

    rest.credential = "me:right"
    rest.vended = vend
    lake = RestLake(rest)
    info = lake.table(COLUMNS)
    first, second = (lake.factory.describe_table(info)["io_properties"] for _ in range(2))
    # Of each load its own: a task that is planned later has later ones.
    assert first["s3.access-key-id"] != second["s3.access-key-id"]
    assert second["s3.session-token"] == "short"
    assert "right" not in str(second)
    assert not set(second) & {"credential", "token", "auth.manager"}
    lake.append(info, pa.record_batch({"id": [1]}))
