"""Texts of buckets: what was written is read back, listed or packed; what is damaged, cut, too large or newer is refused."""

import json
import zlib
from base64 import b64encode

import msgspec
import pytest

from fluss_lab.errors import CorruptDataError, FlussError, UnsupportedError
from fluss_lab.lake import bucket_entries
from fluss_lab.lake.bucket_entries import LISTED_MAX, BucketEntry, read_entries, write_entries

NOW_MS = 1_800_000_000_000


def many(count, chance, per_partition=10, within_ms=10**9):
    """Return entries as a round gives them: by partition, some without a time."""
    found = []
    for number in range(count):
        partition = number // max(1, per_partition)
        named = {"partition_id": 40 + partition, "partition_name": f"2026-11-{partition}"} if per_partition else {}
        time = NOW_MS + chance.randrange(-within_ms, within_ms) if chance.random() < 0.9 else msgspec.UNSET
        entry = BucketEntry(bucket=number, offset=chance.randrange(10**7), max_timestamp=time, **named)
        found.append(entry)
    return found


def test_entries_of_any_number_are_read_back(rng):
    for count in (0, 1, LISTED_MAX, LISTED_MAX + 1, rng.randrange(300, 3_000)):
        for per_partition in (0, 1, 7, 1_000):
            entries = many(count, rng, per_partition)
            text = write_entries(entries)
            assert read_entries(text, "it") == entries
            assert isinstance(json.loads(text), list) == (count <= LISTED_MAX)


def test_ten_thousand_buckets_are_less_than_a_seventh_of_their_list(rng):
    entries = many(10_000, rng, within_ms=90_000)
    assert len(write_entries(entries)) * 7 < len(msgspec.json.encode(entries))


def test_what_a_newer_version_packed_is_refused_with_that_word(rng):
    value = json.loads(write_entries(many(300, rng))) | {"version": 2}
    with pytest.raises(UnsupportedError, match=r"it: .*written by a newer version of fluss_lab \(format 2, .*up to 1"):
        read_entries(json.dumps(value), "it")


def packed(data, **more):
    return json.dumps({"version": 1, "packed": b64encode(data).decode(), **more})


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"version": 1}',
        '{"version": "1", "packed": ""}',
        '{"version": 1, "packed": "*"}',
        packed(b"no zlib"),
        packed(zlib.compress(b"no JSON")),
        packed(zlib.compress(b'[[1, "a", [0], [1, 2], [3], 0]]')),
        packed(zlib.compress(b'[[1, "a", ["0"], [1], [3], 0]]')),
        packed(zlib.compress(b"[]") + b"more"),
        packed(zlib.compress(b"[]")[:-1]),
    ],
)
def test_what_was_not_written_so_is_an_error(text):
    with pytest.raises(CorruptDataError, match=r"^it: no list of buckets with offsets"):
        read_entries(text, "it")


def test_a_character_that_changed_is_never_another_offset(rng):
    entries = many(300, rng)
    text = write_entries(entries)
    for _ in range(200):
        at = rng.randrange(len(text))
        other = text[:at] + rng.choice('aB3+/="x{0') + text[at + 1 :]
        try:
            assert read_entries(other, "it") == entries
        except FlussError as error:
            assert str(error).startswith("it: ")  # noqa: PT017 - one or the other


def test_a_text_that_would_fill_the_memory_is_refused(rng, monkeypatch):
    monkeypatch.setattr(bucket_entries, "_UNPACKED_BYTES_MAX", 10_000)
    entries = many(300, rng)
    assert read_entries(write_entries(entries), "it") == entries
    with pytest.raises(CorruptDataError, match="at most 10000 bytes"):
        read_entries(packed(zlib.compress(b"[" + b" " * 20_000 + b"]")), "it")
