"""The pictures of a table: drawn of any number of buckets, snapshots and files, and of none."""

import pytest

from fluss_lab.display.plot_style import Picture
from fluss_lab.lake import LakeFileInfo, LakeSnapshotInfo
from fluss_lab.model import LakeOffset, TablePath
from fluss_lab.tiering.round.round_report import TieringReport, TieringReports
from fluss_lab.tiering.round.table_lag import LagSample
from fluss_lab.workbench.cards.table_plots import (
    Band,
    _sum_bands,
    files_picture,
    lag_picture,
    offsets_picture,
    snapshots_picture,
)
from tests.unit.display.card_rules import HOSTILE, IMAGE
from tests.unit.workbench.lab_kit import rows, tier

pytestmark = pytest.mark.slow

NOW = 1_700_000_000_000


def band(n, partition=None):
    return Band(partition, n, 0, 900, 300, 500, 1_000 + n)


def snapshot(n, *, operation="append", ours=True, rows=1_000):
    offsets = {(None, 0): LakeOffset(n * 1_000, NOW + n * 9_000, None)} if ours else {}
    return LakeSnapshotInfo(n, NOW + n * 10_000, operation, offsets, rows, 1, rows * n, n, 0, ours)


def file(n, content="data"):
    return LakeFileInfo(f"file:///{n}", content, None, n, 1_000, 50_000 + n, 0, 999)


def words(picture):
    """Return the texts of a picture."""
    axes = picture.drawing
    legend = axes.get_legend()
    found = [axes.get_title(loc="left"), *(text.get_text() for text in axes.texts)]
    return found + ([text.get_text() for text in legend.get_texts()] if legend else [])


def drawn(picture):
    assert isinstance(picture, Picture)
    picture.canvas.draw()
    return words(picture)


@pytest.mark.parametrize("count", [1, 6, 48, 49, 400])
def test_the_bands_of_so_many_buckets(count):
    found = drawn(offsets_picture("db.t", [band(n) for n in range(count)]))
    assert found[0] == f"db.t: offsets of {count:,} buckets"
    assert ("log, remote storage only" in found) == (count <= 48)
    assert ("only lake" in found) == (count > 48)


def test_more_buckets_than_rows_are_sums():
    by_partition = _sum_bands([band(n, f"2013-{p:02d}") for p in range(12) for n in range(50)])
    assert [each.partition for each in by_partition] == [f"2013-{p:02d}" for p in range(12)]
    assert by_partition[0].lake_end == 50 * 900
    beside = _sum_bands([band(n) for n in range(1_001)])
    assert len(beside) <= 400
    assert sum(each.log_end for each in beside) == sum(1_000 + n for n in range(1_001))
    drawn(offsets_picture("db.t", [band(n) for n in range(1_001)]))


def test_the_lanes_are_where_the_records_are():
    picture = offsets_picture("db.t", [band(0)])
    edges = sorted(
        (round(bar.get_y(), 2), bar.get_x(), bar.get_x() + bar.get_width()) for bar in picture.drawing.patches
    )
    assert edges == [(-0.38, 0, 900), (0.02, 300, 500), (0.02, 500, 1_000)]


def test_a_time_line_of_rounds_compactions_and_others():
    snapshots = [snapshot(n) for n in range(1, 9)]
    snapshots += [snapshot(9, operation="replace"), snapshot(10, ours=False)]
    assert drawn(snapshots_picture("db.t", snapshots)) == [
        "db.t: 10 lake snapshots", "round: rows added", "◆ compaction", "● another program's",
    ]  # fmt: skip
    assert "the last 500" in drawn(snapshots_picture("db.t", [snapshot(n) for n in range(1, 700)]))[0]


def test_the_lag_is_drawn_beside_the_freshness():
    samples = [LagSample(NOW, 10, 9_000, 1), LagSample(NOW + 500, 0, 0, 1), LagSample(NOW + 7_000, 3, 6_500)]
    picture = lag_picture("db.t", samples, 10_000)
    assert drawn(picture) == ["db.t: lag of the lake", "oldest record not in the lake", "freshness 10s"]
    lag, freshness = picture.drawing.lines
    assert list(lag.get_ydata()) == [9.0, 0.0, 6.5]
    assert list(freshness.get_ydata()) == [10.0, 10.0]


def test_files_lie_beside_each_other():
    picture = files_picture("db.t", [file(0), file(0), file(1), file(1, "position deletes")])
    assert drawn(picture)[0] == "db.t: 4 files, 195 kB"
    starts = [(round(bar.get_y() + 0.35), bar.get_x()) for bar in picture.drawing.patches]
    assert sorted(starts) == [(0, 0), (0, 50_000), (1, 0), (1, 50_001)]
    assert "delete file" in words(picture)
    assert "the first 48 of 100 buckets" in drawn(files_picture("db.t", [file(n) for n in range(100)]))[0]


def test_where_there_is_nothing_a_picture_says_so():
    assert "No records yet." in drawn(offsets_picture("db.t", []))
    assert "No snapshot yet: no round has ended." in drawn(snapshots_picture("db.t", []))
    assert "No round was looked at." in drawn(lag_picture("db.t", [], 1_000))
    assert "No files: nothing was tiered." in drawn(files_picture("db.t", []))
    assert "No round was timed." in drawn(TieringReports().plot())


@pytest.mark.parametrize("evil", [HOSTILE[0], *HOSTILE[7:12], "$\\frac$ $x"], ids="abcdefg")
def test_hostile_names_are_text(evil):
    drawn(offsets_picture(evil, [band(0, evil)]))
    drawn(files_picture(evil, [LakeFileInfo(evil, evil, evil, 0, 1, 1, None, None)]))


def test_the_stages_of_rounds():
    seconds = {"plan": 0.1, "write": 0.8, "commit": 0.2, "finish": 0.02, "total": 1.12}
    report = TieringReport(TablePath("db", "t"), 5, 1, 10, 1, 412, seconds=seconds)
    assert drawn(report.plot()) == ["stages", "plan 0.10 s", "write 0.80 s", "commit 0.20 s", "finish 0.02 s"]
    assert drawn(TieringReports([report] * 3).plot())[0] == "stages of 3 rounds"
    assert "the last 60" in drawn(TieringReports([report] * 100).plot())[0]


def test_a_table_has_its_pictures(table):
    assert "No records yet." in drawn(table.plot.offsets())
    table.append(rows(40))
    tier(table)
    table.append(rows(10))
    assert f"{table.path}: offsets of 2 buckets" in drawn(table.plot.offsets())
    assert f"{table.path}: 1 lake snapshots" in drawn(table.plot.snapshots())
    assert any("1 files" in each or "2 files" in each for each in drawn(table.plot.files()))
    assert f"{table.path}: lag of the lake" in drawn(table.plot.lag())
    assert ".offsets()" in repr(table.plot)
    assert IMAGE not in repr(table.plot)
