"""The bits of dead offsets, found as Spark's expression finds them."""

import random

import numpy as np

from fluss_lab.lake import LakeSplit
from fluss_lab.model import TableBucket
from fluss_lab.read.union.read_parts import BucketPart
from fluss_lab.read.union.whole_files import WholeFiles
from fluss_lab.spark.source.keyed_frame import dead_bits


def files_of(bucket, spans, dead):
    splits = tuple(LakeSplit(f"f{low}", None, bucket, low, high, high - low + 1, 1) for low, high in spans)
    part = BucketPart(TableBucket(7, None, bucket), None, 0, 10_000, 10_000, None, splits)
    return WholeFiles(part, (), splits, np.array(dead, dtype=np.int64))


def is_dead(bits, bucket, offset):
    place = int(bits[bucket]) + (offset >> 6)
    return bool(int(bits[place]) >> (offset & 63) & 1)


def test_every_offset_of_every_bucket_is_reported_by_its_bit(seed):
    rng = random.Random(seed)
    spans = {0: [(0, 63)], 2: [(64, 200), (1_000, 1_063)], 5: [(129, 129)], 6: [(5, 900)]}
    dead = {b: rng.choices([n for low, high in s for n in range(low, high + 1)], k=40) for b, s in spans.items()}
    bits = dead_bits([files_of(bucket, spans[bucket], dead[bucket]) for bucket in spans])
    for bucket, wide in spans.items():
        for low, high in wide:
            found = [offset for offset in range(low, high + 1) if is_dead(bits, bucket, offset)]
            assert found == sorted({offset for offset in dead[bucket] if low <= offset <= high})


def test_dead_offsets_beyond_the_files_set_no_bit_of_others():
    bits = dead_bits([files_of(0, [(0, 63)], [64, 1_000, 3]), files_of(1, [(0, 63)], [9])])
    assert [offset for offset in range(64) if is_dead(bits, 0, offset)] == [3]
    assert [offset for offset in range(64) if is_dead(bits, 1, offset)] == [9]
