"""A lab that was moved: its lake's files are brought to where it is, whatever cuts that off, and nothing else changes."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from fluss_lab import failpoints
from fluss_lab.cli.commands import commands
from fluss_lab.cli.table_commands import relocate_lab
from fluss_lab.errors import CorruptDataError, LabError, LabLockedError, LabMovedError, StorageError
from fluss_lab.failpoints import FailpointError
from fluss_lab.lake.format_plugin import load_lake
from fluss_lab.lake.iceberg.metadata.avro_file import AvroFile
from fluss_lab.model import TablePath
from fluss_lab.server.process.node_host import make_node
from fluss_lab.server.process.server_node import ServerNode
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.readers import duckdb_rows
from tests.unit.server.disks import read_only
from tests.unit.tiering.kit import Tables
from tests.unit.tiering.repairs import Keyed

pytestmark = pytest.mark.slow

OFF = {"table.datalake.auto-maintenance": False}


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A lab with tables of both kinds, whose rows were updated and deleted in several rounds."""
    folder = tmp_path_factory.mktemp("relocation") / "old lab"
    with EmbeddedCluster(folder) as cluster:
        tables = Tables(cluster)
        info = tables.create(buckets=2, partitioned_by=["month"])
        keyed = Keyed(tables, **OFF)
        for turn in range(3):
            tables.append(info, 10, f"2013-0{turn + 1}")
            tables.tier(info)
            keyed.upsert(range(turn * 5, 20), f"t{turn}-")
            keyed.delete([turn])
            tables.tier(keyed.info)
        keyed.check()
    return folder, keyed.model


@pytest.fixture
def moved(template, tmp_path):
    """The same lab, moved (by a copy of which the original went): where it is, where it was, and its rows."""
    source, model = template
    old = tmp_path / "old lab"
    shutil.copytree(source, old, symlinks=True)
    relocate_lab(old)  # from where the template is
    new = tmp_path / "deeper" / "new lab ä"
    new.parent.mkdir()
    old.rename(new)
    return new, old, model


def named(folder) -> set[str]:
    """Every path or URI that the lake's files name."""
    found = set()

    def gather(value):
        match value:
            case str():
                found.add(value)
            case bytes():
                found.add(value.decode(errors="replace"))
            case dict():
                for each in value.values():
                    gather(each)
            case list() | tuple():
                for each in value:
                    gather(each)

    lake = folder / "lake"
    for path in lake.rglob("*.metadata.json"):
        gather(json.loads(path.read_text()))
    for path in lake.rglob("*.avro"):
        gather(AvroFile.parse(path.read_bytes(), str(path)).blocks)
    for path in lake.rglob("*.parquet"):
        table = pq.read_table(path)
        if "file_path" in table.schema.names:
            gather(table["file_path"].to_pylist())
    with closing(sqlite3.connect(lake / "catalog.db")) as db:
        gather(
            [
                list(row)
                for row in db.execute("SELECT metadata_location, previous_metadata_location FROM iceberg_tables")
            ]
        )
    return {each for each in found if "/lake/warehouse/" in each}


def check(folder, model) -> None:
    with EmbeddedCluster(folder) as cluster:
        tables = Tables(cluster)
        admin = tables.connection.admin()
        info = admin.table_info(TablePath("db", "events"))
        keyed = admin.table_info(TablePath("db", "keyed"))
        assert {row["id"]: row["v"] for row in tables.lake_rows(keyed).to_pylist()} == model
        assert sorted(tables.lake_rows(info)["id"].to_pylist()) == list(range(30))
        assert {row["id"]: row["v"] for row in duckdb_rows(tables.lake(keyed).metadata_location).to_pylist()} == model
        # And on: deletes are placed in files of both times.
        with tables.connection.upsert_writer(keyed.path) as writer:
            writer.upsert(pa.table({"id": pa.array([4, 5], pa.int64()), "v": ["x", "y"]}))
        tables.tier(keyed)
        expected = model | {4: "x", 5: "y"}
        assert {row["id"]: row["v"] for row in tables.lake_rows(keyed).to_pylist()} == expected


def test_a_moved_lab_is_relocated(moved):
    new, old, model = moved
    with pytest.raises(LabMovedError, match=f"fluss-lab repair '{new}' --relocate"):
        ServerNode(new).start()
    before = {path.relative_to(new): path.read_bytes() for path in (new / "lake").rglob("*.parquet")}
    answer = CliRunner().invoke(commands, ["repair", str(new), "--relocate"])
    assert answer.exit_code == 0, answer.output
    assert "rewrote 2 table(s) in the catalog" in answer.output
    paths = named(new)
    assert len(paths) > 20
    assert all(f"{new}/lake/warehouse/" in each for each in paths)
    assert not any(str(old) + "/" in each for each in paths)
    after = {path.relative_to(new): path.read_bytes() for path in (new / "lake").rglob("*.parquet")}
    rewritten = {path for path in after if after[path] != before[path]}
    assert rewritten
    assert all("file_path" in pq.read_schema(new / path).names for path in rewritten)
    assert not list((new / "lake").rglob(".*"))
    check(new, model)
    assert CliRunner().invoke(commands, ["repair", str(new), "--relocate"]).output.count(" 0 ") == 5


def test_sizes_are_those_of_the_files(moved):
    """Readers find footers by them."""
    new, _, _ = moved
    relocate_lab(new)
    lists = deletes = 0
    for path in (new / "lake").rglob("*.avro"):
        for record in (record for block in AvroFile.parse(path.read_bytes(), str(path)).blocks for record in block):
            if "manifest_path" in record:
                lists += 1
                assert record["manifest_length"] == local(record["manifest_path"]).stat().st_size
            elif record["data_file"]["content"] == 1:
                deletes += 1
                file = record["data_file"]
                assert file["file_size_in_bytes"] == local(file["file_path"]).stat().st_size
    assert lists > 0 < deletes


def local(name: bytes) -> Path:
    return Path(unquote(urlparse(name.decode()).path))


def test_a_copy_is_relocated_and_the_original_left_alone(moved):
    new, _, model = moved
    relocate_lab(new)
    copy = new.parent / "copy"
    shutil.copytree(new, copy)
    before = named(new)
    with pytest.raises(LabMovedError):
        ServerNode(copy).start()
    relocate_lab(copy)
    assert all(f"{copy}/lake/warehouse/" in each for each in named(copy))
    assert named(new) == before
    check(copy, model)


def test_wherever_it_is_cut_off_the_next_run_finishes_it(moved):
    """At every file, and around the catalog: refused in between, whole in the end."""
    new, old, model = moved
    cuts = 0
    for number in range(1, 200):
        failpoints.arm("lake.relocate.file", "error@1")
        try:
            relocate_lab(new)
        except FailpointError:
            cuts += 1
            failpoints.disarm()
            if number in {1, 7}:
                with pytest.raises(LabMovedError, match="--relocate"):
                    ServerNode(new).start()
            continue
        break
    assert cuts > 15
    assert not any(str(old) + "/" in each for each in named(new))
    check(new, model)


@pytest.mark.parametrize("point", ["lake.relocate.catalog.before", "lake.relocate.catalog.after"])
def test_cut_off_around_the_catalog_and_moved_again_or_back(moved, point):
    new, old, model = moved
    failpoints.arm(point, "error@1")
    with pytest.raises(FailpointError):
        relocate_lab(new)
    failpoints.disarm()
    # Back where it was, half of it names another place.
    new.rename(old)
    with pytest.raises(LabMovedError, match="interrupted"):
        ServerNode(old).start()
    third = new.parent / "third"
    old.rename(third)
    relocate_lab(third)
    assert all(f"{third}/lake/warehouse/" in each for each in named(third))
    check(third, model)


def test_what_a_killed_run_began_is_removed(moved):
    new, _, _ = moved
    list_path = next((new / "lake").rglob("snap-*.avro"))
    draft = list_path.with_name(f".{list_path.name}.a1b2c3d4")
    draft.write_bytes(b"half")
    others = list_path.with_name(f".{list_path.name}.crc")
    others.write_bytes(b"of Hadoop's")
    relocate_lab(new)
    assert (draft.exists(), others.exists()) == (False, True)


def test_a_catalog_that_is_gone_or_damaged_is_brought_back_first(moved):
    """Seen: without one the relocation was done, and the one that was brought back then named the old places for ever."""
    new, _, model = moved
    catalog = new / "lake" / "catalog.db"
    kept = catalog.read_bytes()
    catalog.unlink()
    with pytest.raises(CorruptDataError, match=r"catalog.db: the catalog's file is missing.*restore it from a copy"):
        relocate_lab(new)
    catalog.write_bytes(kept[:1000] + b"x" * 8000)
    with pytest.raises(CorruptDataError, match=r"catalog.db: the catalog is damaged.*restore it from a copy"):
        relocate_lab(new)
    catalog.write_bytes(kept)
    assert relocate_lab(new).tables == 2
    check(new, model)


def test_a_folder_that_cannot_be_written_says_what_helps(moved):
    new, _, _ = moved
    with (
        read_only(new),
        pytest.raises(StorageError, match=r"cannot be written.*mount it for writing, or move it back; or copy it"),
    ):
        relocate_lab(new)


def test_a_lab_in_use_or_none_at_all(moved, tmp_path):
    new, _, _ = moved
    with pytest.raises(LabError, match="not a lab's folder"):
        relocate_lab(tmp_path / "nowhere")
    relocate_lab(new)
    with make_node(new, load_lake, options={}), pytest.raises(LabLockedError):
        relocate_lab(new)
    assert relocate_lab(new).tables == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["d.t"], "expected one of TABLE --adopt"),
        (["d.t", "--adopt", "--relocate"], "expected one of TABLE --adopt"),
        (["d.t", "--adopt", "--skip-corrupt"], "expected one of TABLE --adopt"),
        (["lab", "--relocate", "--yes"], "--yes goes with --adopt and --skip-corrupt"),
        (["d.t", "--skip-corrupt", "--accept-gaps"], "--accept-gaps goes with --adopt"),
        (["d.t", "--adopt", "--discard-before"], "--discard-before goes with --skip-corrupt"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments, says):
    with pytest.raises(Exception, match=says):
        CliRunner().invoke(commands, ["repair", *arguments], catch_exceptions=False)


# -- Avro files --------------------------------------------------------------------------------------------------------

SCHEMA = {
    "type": "record", "name": "r", "fields": [
        {"name": "n", "type": "null"}, {"name": "b", "type": "boolean"}, {"name": "i", "type": "int"},
        {"name": "l", "type": ["null", "long"]}, {"name": "f", "type": "float"}, {"name": "d", "type": "double"},
        {"name": "s", "type": {"type": "string"}}, {"name": "x", "type": {"type": "fixed", "name": "four", "size": 4}},
        {"name": "again", "type": "four"}, {"name": "e", "type": {"type": "enum", "name": "e1", "symbols": ["A", "B"]}},
        {"name": "a", "type": {"type": "array", "items": {"type": "record", "name": "p", "fields": [
            {"name": "key", "type": "int"}, {"name": "value", "type": "bytes"}]}}},
        {"name": "m", "type": {"type": "map", "values": "long"}},
    ],
}  # fmt: skip


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
def test_avro_files_come_back_as_they_were(codec):
    values = [
        {
            "n": None, "b": b"\x01", "i": -5 + number, "l": (number % 2, None if number % 2 == 0 else (1 << 62) - number),
            "f": b"\x00\x00\x80?", "d": b"\x00" * 8, "s": ("ä" * number).encode(), "x": b"abcd", "again": b"efgh",
            "e": number % 2, "a": [{"key": key, "value": b"v" * key} for key in range(number)], "m": [(b"k", -number)],
        }
        for number in range(40)
    ]  # fmt: skip
    header = {"avro.schema": json.dumps(SCHEMA).encode(), "avro.codec": codec.encode(), "own": b"kept"}
    made = AvroFile(header, b"0123456789abcdef", [values[:30], values[30:]])
    data = made.to_bytes()
    parsed = AvroFile.parse(data, "made")
    assert parsed.blocks == made.blocks
    assert dict(parsed.header) == header
    assert parsed.to_bytes() == data
