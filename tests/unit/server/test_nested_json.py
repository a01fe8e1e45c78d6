"""JSON that nests deeper than Python reads it: refused as what it is, by every reader of a file or text from outside."""

import pytest

from fluss_lab.client.cluster.server_address import ServerAddress
from fluss_lab.errors import CorruptDataError, InvalidRequestError, LabError
from fluss_lab.model import make_descriptor
from fluss_lab.read.filter.filter_json import filter_from_json
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.server.folder.remote_storage import RemoteDir
from fluss_lab.server.process import discovery, server_process
from fluss_lab.server.tablet.remote.remote_manifest import DroppedMark
from fluss_lab.spark.sink.sink_journal import SinkFolder

DEEP = "[" * 100_000
SCHEMA = make_descriptor({"id": "bigint"}).schema


@pytest.mark.parametrize(
    "read", [ReadPoint.from_json, ServerAddress.from_json, lambda text: filter_from_json(text, SCHEMA)]
)
def test_texts(read):
    with pytest.raises(InvalidRequestError, match="in JSON"):
        read(DEEP)


@pytest.mark.parametrize(
    ("name", "read", "error"),
    [
        ("server.json", discovery.read, LabError),
        (server_process.OPTIONS_FILE, server_process.read_options, LabError),
        ("owner.json", lambda folder: RemoteDir(folder, "lab").check(), LabError),
        ("remote-log", lambda folder: DroppedMark(folder).load(), CorruptDataError),
        ("sink.json", lambda folder: SinkFolder(folder).state(), CorruptDataError),
    ],
)
def test_files(tmp_path, name, read, error):
    (tmp_path / name).write_text(DEEP)
    with pytest.raises(error, match=name):
        read(tmp_path)
