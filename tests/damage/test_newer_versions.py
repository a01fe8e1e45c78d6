"""Every format number of every file of a lab, raised to one that no version has: refused with that word, and left as it is."""

import ast
import json
import random
import re
import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from fluss_lab.errors import CorruptDataError, FlussError, UnsupportedError
from fluss_lab.model import TableBucket, TablePath, make_descriptor
from fluss_lab.read.changelog.stream_offsets import StreamOffset
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.server.folder.lab_inspection import inspect_lab
from fluss_lab.server.process import discovery, server_process
from fluss_lab.spark.sink.sink_journal import Intent, IntentBucket, SendPosition, SinkFolder, SinkState
from fluss_lab.testing.parquet_lake.table_versions import LakeFolder, Manifest
from tests.damage.newer import NEWER, newer_json, places

PACKAGE = Path(__file__).parents[2] / "fluss_lab"
TEXT = "written by a newer version of fluss_lab"
#: Which module reads each kind of format number of a lab at rest. The test finds both sides by itself; what it finds and
#: is not here fails it, so that a new kind of file is not forgotten.
KINDS = {
    "model/descriptor.py": {"metadata.db: tables.descriptor"},
    "model/schema.py": {"metadata.db: schemas.schema", "tablet/data/t#/schema-#.json: json"},
    "records/batch.py": {
        "remote/log/db/#/#/#/#.log: batch",
        "tablet/data/t#/b#/#.log: batch",
    },
    "records/remote_segment.py": {"remote/log/db/#/#/#/#.blocks: header"},
    "records/kv_manifest.py": {"remote/kv/db/#/#/#.manifest: json", "metadata.db: kv_snapshots.completed"},
    "server/coordinator/metadata/metadata_store.py": {"metadata.db: user_version"},
    "server/process/server_process.py": {"server-options.json: json"},
    "server/folder/remote_storage.py": {"remote/owner.json: json"},
    "server/tablet/log/recovery_point.py": {
        "tablet/data/t#/b#/recovery-point: json",
        "tablet/data/t#/b#/log-start: json",
    },
    "server/tablet/remote/remote_manifest.py": {
        "remote/log/db/#/#/manifest: json",
        "tablet/data/t#/b#/remote-log: json",
    },
}
CELLS = {"tables.descriptor", "schemas.schema", "kv_snapshots.completed"}
#: Of files elsewhere, of a running lab, or of one that was repaired: each has a test of its own.
ELSEWHERE = {
    "jobs/job_store.py",
    "lake/bucket_entries.py",
    "lookup/rows/kept_rows.py",
    "spark/lookup/batch_points.py",
    "spark/session/class_archive.py",
    "read/moment/read_point.py",
    "read/changelog/stream_offsets.py",
    "server/process/discovery.py",
    "server/tablet/damage/log_cut.py",
    "spark/sink/sink_journal.py",
    "testing/parquet_lake/table_versions.py",
}
#: What no file has: it goes from process to process, of one release; the number of a format that is Iceberg's; and what
#: writes the others' numbers.
NO_FILE = {
    "lake/iceberg/maintenance/compaction_task.py",
    "lake/iceberg/table/layout.py",
    "lake/iceberg/write/lake_write_result.py",
    "lake/iceberg/write/write_target.py",
    "lookup/planned_lookup.py",
    "lookup/portable.py",
    "model/json_codec.py",
    "testing/parquet_lake/parquet_writer.py",
    "testing/sharded_rows.py",
    "tiering/task/tiering_task.py",
}
_NUMBER = re.compile(r"_?([A-Z]+_)*(VERSION|FORMAT|MAGIC)")
_FORMATS = re.compile(r"format 99, this one reads up to \d")
_HINT = re.compile(r'"(format_)?version"|VERSION\b|FORMAT\b|MAGIC\b')


def _kind(path, form):
    """Return a kind's name, the same for all tables."""
    return f"{re.sub('(keyed|logged)-#', '#', path)}: {form}"


def _places(lab):
    found = defaultdict(list)
    for kind, files in lab.kinds().items():
        for file in files:
            for place in places(lab.kept, file):
                found[_kind(kind, place.form)].append(place)
    return found


def _is_number(node):
    """Return whether a statement defines a format's number."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    value = getattr(node, "value", None)
    is_whole = isinstance(value, ast.Constant) and type(value.value) is int
    return is_whole and any(_NUMBER.fullmatch(name) for name in names)


def _writes_number(node):
    keys = [key.value for key in node.keys if isinstance(key, ast.Constant)] if isinstance(node, ast.Dict) else []
    return bool({"version", "format_version"} & set(keys))


def _modules_with_numbers():
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        if not _HINT.search(text := path.read_text()):
            continue
        tree = ast.parse(text)
        if any(map(_is_number, tree.body)) or any(map(_writes_number, ast.walk(tree))):
            found.add(path.relative_to(PACKAGE).as_posix())
    return found


def test_every_format_number_is_known_here(whole_lab):
    assert set(_places(whole_lab)) == {kind for kinds in KINDS.values() for kind in kinds}
    assert _modules_with_numbers() == set(KINDS) | ELSEWHERE | NO_FILE


def _check_heard(errors, path):
    """See that errors speak of a newer version and the file, and none of damage."""
    spoken = [error for error in errors if TEXT in str(error)]
    assert spoken, f"{path}: nobody said so, but {[str(each) for each in errors] or 'nothing'}"
    assert all(isinstance(error, FlussError) and not error.retriable for error in spoken)
    assert all(_FORMATS.search(str(error)) for error in spoken)
    assert any(str(path) in str(error) for error in spoken), f"{path} is not named: {[str(each) for each in spoken]}"
    damage = [str(error) for error in errors if isinstance(error, CorruptDataError) or "checksum" in str(error)]
    assert not damage, f"{path}: taken for damage: {damage}"


def _looked_at(lab):
    """Return what `doctor --deep` says of a lab as it lies there."""
    try:
        return [str(each) for each in inspect_lab(lab)]
    except FlussError as error:
        return [str(error)]


@pytest.mark.parametrize("kind", sorted(kind for kinds in KINDS.values() for kind in kinds))
def test_a_newer_file_of_a_lab_is_refused_and_left_alone(whole_lab, kind, seed):
    rng = random.Random(seed)
    place = rng.choice(_places(whole_lab)[kind])
    path = whole_lab.place / place.file
    before = []

    def bump(file):
        place.bump(file, rng)
        before.append(place.found(file))

    wrong, errors = whole_lab.heard(bump, place.file, again=False)
    assert not wrong, "\n".join(wrong)
    _check_heard(errors, path)
    assert [place.found(path)] == before, f"{path} was written again"
    # Of the metadata's rows doctor reads none of their JSON.
    assert place.form in CELLS or any(TEXT in line for line in _looked_at(whole_lab.place))


def test_where_newer_servers_are_is_refused_and_left_alone(whole_lab):
    path = whole_lab.place / discovery.DISCOVERY_FILE

    def lay(file):
        entry = discovery.ServerEntry(1, "127.0.0.1", 1, str(file.parent / "token"), ("coordinator",), 0)
        discovery.write(file.parent, entry, ephemeral=False)
        file.write_text(newer_json(file.read_text()))

    _, errors = whole_lab.heard(lay, Path(discovery.DISCOVERY_FILE))
    _check_heard(errors, path)
    for read in (discovery.read, server_process.running_server):
        with pytest.raises(FlussError, match=TEXT):
            read(whole_lab.place)
    assert json.loads(path.read_text())["version"] == NEWER


# -- files elsewhere -------------------------------------------------------------------------------------------------


def _refused(read, path, text=TEXT):
    before = path.read_bytes()
    with pytest.raises(UnsupportedError, match=text) as caught:
        read()
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["sink.json", "intent.json", "progress.json"])
def test_journals_of_a_newer_sink_are_refused_and_left_alone(tmp_path, name):
    folder, bucket = SinkFolder(tmp_path / "sink"), TableBucket(1, None, 0)
    intent = Intent(3, 1, None, (), (IntentBucket(bucket, None, 7, 0, 0, ()),))
    folder.make()
    folder.write_state(SinkState(1, "query"))
    folder.write_intent(intent)
    folder.write_positions(intent, [SendPosition(0, 0, 0, 7, 0, 0)])
    reads = {
        "sink.json": folder.state,
        "intent.json": lambda: folder.intent(1),
        "progress.json": lambda: folder.positions(intent),
    }
    for read in reads.values():
        assert read()
    path = folder.path / name
    path.write_text(newer_json(path.read_text()))
    _refused(reads[name], path)


def test_versions_of_a_newer_parquet_lake_are_refused_and_left_alone(tmp_path):
    table = TablePath("d", "t")
    lake = LakeFolder(tmp_path, table)
    lake.make()
    lake.publish(Manifest(1, 1, make_descriptor({"id": "bigint"})))
    (path,) = lake.path.rglob("*.json")
    assert lake.newest() is not None
    path.write_text(newer_json(path.read_text()))
    _refused(lake.newest, path)


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (
            ReadPoint.from_json,
            ReadPoint(TablePath("d", "t"), 1, 1, 5, False, None, (), ()).to_json(),
        ),
        (
            lambda text: StreamOffset.from_json(json.loads(text)),
            json.dumps(StreamOffset("d.t", 1, {TableBucket(1, None, 0): 5}).to_json()),
        ),
    ],
    ids=["read point", "offset of a stream"],
)
def test_texts_of_a_newer_version_are_refused(read, value):
    read(value)
    with pytest.raises(UnsupportedError, match=TEXT):
        read(newer_json(value))


def test_a_newer_kind_of_file_would_be_found(whole_lab, tmp_path):
    lab = tmp_path / "lab"
    shutil.copytree(whole_lab.kept, lab)
    (lab / "invented").write_text('{"version": 1}')
    assert [place.form for place in places(lab, Path("invented"))] == ["json"]
    (lab / "invented").write_text('{"versions": 1}')
    assert not list(places(lab, Path("invented")))
