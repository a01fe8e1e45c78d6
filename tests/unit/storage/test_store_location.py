"""What locations mean, and which are refused."""

import subprocess
import sys
from pathlib import Path

import pytest

from fluss_lab.errors import InvalidPropertyError
from fluss_lab.model.config.option_secrets import mask_secret
from fluss_lab.model.config.options import REMOTE_S3_OPTIONS, REMOTE_S3_SECRETS
from fluss_lab.storage.store_location import StoreLocation, location_of, place_of

KEYS = {
    "remote.s3.access-key-id": "lab",
    "remote.s3.secret-access-key": "hidden-key",
    "remote.s3.session-token": "hidden-token",
}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("/data/remote", Path("/data/remote")),
        ("file:///data/a%20b", Path("/data/a b")),
        ("remote:1", Path("remote:1")),
        ("s3://bucket/labs/one/", StoreLocation("s3", "bucket", "labs/one")),
        ("gs://bucket/one", StoreLocation("gs", "bucket", "one")),
        ("abfss://files@account.dfs.core.windows.net/one", StoreLocation("abfss", "files@account.dfs.core.windows.net", "one")),
    ],
)  # fmt: skip
def test_locations(given, found):
    assert location_of(given, "remote.data.dir") == found


@pytest.mark.parametrize(
    "given",
    ["s3://bucket", "s3://bucket/", "s3:///prefix", "s3://bucket/a/../b", "s3://bucket/a//b", "s3://bucket/a?x=1",
     "s3://bucket/a#b", "s3://key:password@bucket/a", "hdfs://host/a", "file://host/a"],
)  # fmt: skip
def test_what_is_no_location_is_refused(given):
    with pytest.raises(InvalidPropertyError, match=r"remote\.data\.dir.*expected a path") as caught:
        location_of(given, "remote.data.dir")
    assert "password" not in str(caught.value)


def test_a_place_shows_no_secret():
    place = place_of("s3://bucket/one", {**KEYS, "remote.s3.endpoint": "http://127.0.0.1:1"})
    assert "hidden" not in f"{place!r} {place} {place.store!r}"
    assert str(place) == "s3://bucket/one"


def test_secrets_are_masked():
    for option in REMOTE_S3_OPTIONS:
        assert (mask_secret(option.key, "value") == "value") == (option not in REMOTE_S3_SECRETS)


def test_the_library_is_loaded_where_there_is_an_object_store():
    code = (
        "import sys; from fluss_lab.server.folder import remote_storage; from fluss_lab.client.log import remote_reader;"
        "from fluss_lab.storage.store_location import place_of; place_of('/data', {}); assert 'obstore' not in sys.modules;"
        "place_of('s3://bucket/one', {}); assert 'obstore' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_home_of_nobody_is_no_place():
    with pytest.raises(
        InvalidPropertyError, match=r"property 'remote.data.dir': expected a path.*found '~nobody-of-this-name/x'"
    ):
        location_of("~nobody-of-this-name/x", "remote.data.dir")
