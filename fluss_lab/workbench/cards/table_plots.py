"""The drawing of a table's pictures: bands of offsets, snapshots and lag on a time line, files by size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final

from fluss_lab.display.marks import INK, LAKE, LOG
from fluss_lab.display.plot_style import Picture, count_axis, ink_text, key, say_nothing, swatch, time_axis, worded_axis
from fluss_lab.display.shown_text import ago
from fluss_lab.lake import LakeFileInfo, LakeSnapshotInfo
from fluss_lab.model.times import format_duration, format_size
from fluss_lab.tiering.round.table_lag import LagSample

#: Up to so many rows there are two lanes, up to so many a row is a bucket; beyond, a row is a sum.
_LANES_MAX: Final = 48
_ROWS_MAX: Final = 400
#: Inches of a row, by how many rows there are at most.
_HEIGHTS: Final = ((6, 0.42), (14, 0.26), (24, 0.18), (_LANES_MAX, 0.13), (110, 0.05), (_ROWS_MAX, 0.02))
_SNAPSHOTS_MAX: Final = 500
#: In the lake and in the log, drawn in one lane.
_ONLY_LAKE_ALPHA: Final = 0.45
_REMOTE_ALPHA: Final = 0.5


@dataclass(frozen=True, slots=True)
class Band:
    """Where the records of one bucket are, or of several: offsets, half-open.

    Attributes:
        partition: Name of the partition; None without.
        bucket: Its number; of several the first.
        lake_start: From here on the lake can replay it.
        lake_end: Up to here the lake holds it.
        log_start: From here on the cluster holds it.
        local_start: From here on a server's disk holds it, what is before remote storage.
        log_end: Up to here.
    """

    partition: str | None
    bucket: int
    lake_start: int
    lake_end: int
    log_start: int
    local_start: int
    log_end: int

    @property
    def name(self) -> str:
        """Return partition and bucket."""
        return ink_text(str(self.bucket) if self.partition is None else f"{self.partition}/{self.bucket}", 24)


def offsets_picture(path: str, bands: Sequence[Band], unknown: int = 0) -> Picture:
    """Return the bands of a table's buckets, on one scale of offsets."""
    rows = _sum_bands(bands)
    doubt = f", {unknown:,} not known" if unknown else ""
    picture = Picture(0.95 + _height(len(rows)), f"{ink_text(path)}: offsets of {len(bands):,} buckets{doubt}")
    axes = picture.drawing
    if not any(each.log_end or each.lake_end for each in rows):
        say_nothing(axes, "No records yet.")
        return picture
    (_two_lanes if len(rows) <= _LANES_MAX else _one_lane)(axes, rows)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(left=0)
    step = max(1, -(-len(rows) // 24))
    axes.set_yticks(range(0, len(rows), step), [each.name for each in rows[::step]])
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    count_axis(axes.xaxis, 6)
    axes.set_xlabel("offset")
    return picture


def _two_lanes(axes: Any, rows: Sequence[Band]) -> None:
    places = list(range(len(rows)))
    upper, lower = [each - 0.2 for each in places], [each + 0.2 for each in places]
    starts = [each.log_start for each in rows]
    _bars(axes, upper, [each.lake_start for each in rows], [each.lake_end for each in rows], LAKE, 0.36)
    _bars(axes, lower, starts, [max(each.log_start, each.local_start) for each in rows], LOG, 0.36, _REMOTE_ALPHA)
    _bars(axes, lower, [each.local_start for each in rows], [each.log_end for each in rows], LOG, 0.36)
    ticked = [(place, each.lake_end) for place, each in zip(places, rows, strict=True) if each.lake_end]
    axes.vlines(
        [end for _, end in ticked], [p - 0.45 for p, _ in ticked], [p + 0.45 for p, _ in ticked], INK, linewidth=1
    )
    patches = [swatch(LAKE, "lake"), swatch(LOG, "log")]
    if any(each.local_start > each.log_start for each in rows):
        patches.append(swatch(LOG, "log, remote storage only", _REMOTE_ALPHA))
    if ticked:
        patches.append(swatch(INK, "a read changes over"))
    key(axes, patches)


def _one_lane(axes: Any, rows: Sequence[Band]) -> None:
    places = list(range(len(rows)))
    both = [min(max(each.lake_start, each.log_start), each.lake_end) for each in rows]
    _bars(axes, places, [each.lake_start for each in rows], both, LAKE, 0.8, _ONLY_LAKE_ALPHA)
    _bars(axes, places, both, [each.lake_end for each in rows], LAKE, 0.8)
    _bars(
        axes, places, [max(each.lake_end, each.log_start) for each in rows], [each.log_end for each in rows], LOG, 0.8
    )
    key(axes, [
        swatch(LAKE, "only lake", _ONLY_LAKE_ALPHA),
        swatch(LAKE, "lake and log"),
        swatch(LOG, "only log"),
    ])  # fmt: skip


def _bars(
    axes: Any, places: Sequence[float], starts: Sequence[int], ends: Sequence[int], colour: str, height: float,
    alpha: float = 1.0,
) -> None:  # fmt: skip
    """Draw ranges; one that holds something is seen, however long the scale is."""
    widths = [max(0, end - start) for start, end in zip(starts, ends, strict=True)]
    filled = [index for index, width in enumerate(widths) if width]
    axes.barh(
        [places[index] for index in filled], [widths[index] for index in filled],
        left=[starts[index] for index in filled], height=height, color=colour, alpha=alpha, edgecolor=colour, linewidth=0.6,
    )  # fmt: skip


def _sum_bands(bands: Sequence[Band]) -> list[Band]:
    """Return a band for each row: where there are too many buckets, sums by partition, or of buckets beside each other."""
    if len(bands) <= _ROWS_MAX:
        return list(bands)
    partitions = [list(members) for _, members in groupby(bands, lambda each: each.partition)]
    if not 1 < len(partitions) <= _ROWS_MAX:
        size = -(-len(bands) // _ROWS_MAX)
        partitions = [list(bands[index : index + size]) for index in range(0, len(bands), size)]
    return [_sum(members) for members in partitions]


def _sum(members: Sequence[Band]) -> Band:
    fields: tuple[Callable[[Band], int], ...] = (
        lambda each: each.lake_start, lambda each: each.lake_end, lambda each: each.log_start,
        lambda each: each.local_start, lambda each: each.log_end,
    )  # fmt: skip
    lake_start, lake_end, log_start, local_start, log_end = (sum(map(each, members)) for each in fields)
    return Band(members[0].partition, members[0].bucket, lake_start, lake_end, log_start, local_start, log_end)


def snapshots_picture(path: str, snapshots: Sequence[LakeSnapshotInfo]) -> Picture:
    """Return snapshots on a time line."""
    shown = snapshots[-_SNAPSHOTS_MAX:]
    left_out = f", the last {len(shown):,}" if len(shown) < len(snapshots) else ""
    picture = Picture(2.4, f"{ink_text(path)}: {len(snapshots):,} lake snapshots{left_out}")
    axes = picture.drawing
    if not shown:
        say_nothing(axes, "No snapshot yet: no round has ended.")
        return picture
    rounds = [each for each in shown if each.ours and each.added_rows and not _is_compaction(each)]
    others = [each for each in shown if not each.ours]
    compactions = [each for each in shown if _is_compaction(each)]
    top = max((each.added_rows or 0 for each in rounds), default=1)
    axes.vlines(_times(rounds), 0, [each.added_rows or 0 for each in rounds], LAKE, linewidth=3)
    _points(axes, compactions, INK, "D", top)
    _points(axes, others, LOG, "o", top)
    found = [
        (LAKE, "round: rows added", rounds),
        (INK, "◆ compaction", compactions),
        (LOG, "● another program's", others),
    ]
    key(axes, [swatch(colour, text) for colour, text, members in found if members])
    axes.set_ylim(0, top * 1.15)
    count_axis(axes.yaxis, 5)
    axes.set_ylabel("rows")
    time_axis(axes, _times(shown))
    return picture


def _is_compaction(snapshot: LakeSnapshotInfo) -> bool:
    return snapshot.ours and snapshot.operation == "replace"


def _points(axes: Any, snapshots: Sequence[LakeSnapshotInfo], colour: str, marker: str, top: float) -> None:
    axes.plot(_times(snapshots), [top * 0.04] * len(snapshots), marker, color=colour, markersize=6, linestyle="none")


def lag_picture(path: str, samples: Sequence[LagSample], freshness_ms: int) -> Picture:
    """Return how far the lake lagged behind over time, and how far it may: a saw of one tooth a round."""
    picture = Picture(2.2, f"{ink_text(path)}: lag of the lake")
    axes = picture.drawing
    if not samples:
        say_nothing(axes, "No round was looked at.")
        return picture
    times, ages = [_time(each.time_ms) for each in samples], [each.ms / 1000 for each in samples]
    axes.fill_between(times, ages, color=LAKE, alpha=0.25, linewidth=0)
    axes.plot(times, ages, color=LAKE, linewidth=1.4, marker="o", markersize=2.5)
    axes.axhline(freshness_ms / 1000, color=INK, linewidth=0.8, linestyle="--")
    axes.set_ylim(bottom=0)
    worded_axis(axes.yaxis, lambda value: ago(round(value * 1000)))
    time_axis(axes, times)
    key(
        axes, [swatch(LAKE, "oldest record not in the lake"), swatch(INK, f"freshness {format_duration(freshness_ms)}")]
    )
    return picture


def files_picture(path: str, files: Sequence[LakeFileInfo]) -> Picture:
    """Return the files of each bucket beside each other, each as wide as it is large."""
    buckets = sorted({(each.partition or "", each.bucket) for each in files})
    shown = buckets[:_LANES_MAX]
    total = format_size(sum(each.size_bytes for each in files))
    left_out = f", those of the first {len(shown)} of {len(buckets):,} buckets" if len(shown) < len(buckets) else ""
    picture = Picture(0.95 + _height(len(shown)), f"{ink_text(path)}: {len(files):,} files, {total}{left_out}")
    axes = picture.drawing
    if not files:
        say_nothing(axes, "No files: nothing was tiered.")
        return picture
    places = {bucket: place for place, bucket in enumerate(shown)}
    ends = dict.fromkeys(shown, 0)
    drawn = [each for each in files if (each.partition or "", each.bucket) in places]
    drawn.sort(key=lambda each: (each.content != "data", each.min_offset or 0))
    rows, lefts, widths, colours = [], [], [], []
    for each in drawn:
        bucket = (each.partition or "", each.bucket)
        rows.append(places[bucket])
        lefts.append(ends[bucket])
        widths.append(each.size_bytes)
        colours.append(LAKE if each.content == "data" else INK)
        ends[bucket] += widths[-1]
    # A gap between files, on any ground: bars that are a little shorter than the files.
    gap = max(ends.values()) / 400
    axes.barh(rows, [max(width - gap, gap / 4) for width in widths], left=lefts, height=0.7, color=colours, linewidth=0)
    axes.set_yticks(
        range(len(shown)), [ink_text(f"{name}/{number}" if name else str(number), 24) for name, number in shown]
    )
    axes.set_ylim(len(shown) - 0.4, -0.6)
    worded_axis(axes.xaxis, lambda value: format_size(round(value)))
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    kinds = [(LAKE, "data file"), *([(INK, "delete file")] if INK in colours else [])]
    key(axes, [swatch(colour, text) for colour, text in kinds])
    return picture


def _height(rows: int) -> float:
    """Return the inches of so many rows."""
    each = next((height for limit, height in _HEIGHTS if rows <= limit), _HEIGHTS[-1][1])
    return max(0.6, rows * each)


def _time(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def _times(snapshots: Iterable[LakeSnapshotInfo]) -> list[datetime]:
    return [_time(each.time_ms) for each in snapshots]
