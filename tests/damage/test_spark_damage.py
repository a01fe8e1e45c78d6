"""Damaged files of a lab, asked by Spark's readers: the truth or an error within its time, never a third thing."""

from __future__ import annotations

import random
import shutil
from functools import partial

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from fluss_lab.errors import FlussError
from tests.damage.damages import DAMAGES
from tests.damage.spark_readers import SparkLab
from tests.damage.whole_lab import KEYED, LOGGED

pytestmark = pytest.mark.spark

#: What the quick suite damages: files that Spark reads by itself, and one of any kind.
READ_BY_SPARK = ("data/", "metadata/")
#: Of the campaign: some minutes each. Coprime to the number of damages, so that each part has all of them.
PARTS = 5


@pytest.fixture(scope="module")
def lab(spark, tmp_path_factory):
    return SparkLab(tmp_path_factory.mktemp("spark-damage"), spark)


def _damage(name, rng):
    if name in {"deleted", "emptied"}:
        return partial(DAMAGES[name], _rng=rng)
    return partial(DAMAGES[name], rng=rng)


def _run(lab, cases, rng):
    kinds, exact, refused, wrong = lab.kinds(), 0, 0, []
    for kind, damage in cases:
        file = rng.choice(kinds[kind])
        problems, errors = lab.heard(_damage(damage, rng), file, again=False)
        reported = [f"{file} {damage}: {problem}" for problem in problems]
        print(*reported, sep="\n", end="\n" if reported else "", flush=True)  # a campaign is long
        wrong += reported
        exact, refused = exact + (not errors), refused + bool(errors)
    print(f"{len(cases)} cases: {exact} exact, {refused} refused, {len(wrong)} wrong, slowest {lab.slowest_s:.1f} s")
    assert not wrong, "\n".join(wrong)


def test_spark_gives_what_arrow_gives(lab, whole_lab):
    for path in (LOGGED, KEYED):
        assert lab.expected[f"{path} sql"] == whole_lab.expected[f"{path} scan"]
        assert len(lab.expected[f"{path} stream"]) == len(whole_lab.expected[f"{path} changelog"])


def test_spark_s_readers_of_a_damaged_lab_give_the_truth_or_an_error(lab, rng):
    kinds = sorted(lab.kinds())
    lake = [kind for kind in kinds if any(part in kind for part in READ_BY_SPARK)]
    assert len(lake) > 4
    damages = sorted(DAMAGES)
    _run(lab, [(rng.choice(lake), rng.choice(damages)), (rng.choice(kinds), rng.choice(damages))], rng)


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(PARTS))
def test_spark_s_readers_of_every_damage_of_every_kind_of_file(lab, part, seed):
    rng = random.Random(seed + part)
    _run(lab, [(kind, damage) for kind in sorted(lab.kinds()) for damage in DAMAGES][part::PARTS], rng)


# -- a stream's checkpoint -------------------------------------------------------------------------------------------


def _checkpoint(lab, cluster, folder):
    """Return the checkpoint of a query that has read all, in batches, and how many records these were."""
    return len(lab.stream(cluster, LOGGED, folder, maxRowsPerTrigger="40"))


def _files(folder):
    return sorted(
        path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".crc")
    )


def _resumed(lab, cluster, folder):
    """Return the records of a query that goes on from a checkpoint; None when it is refused."""
    try:
        return lab.stream(cluster, LOGGED, folder, maxRowsPerTrigger="40")
    except (PySparkException, Py4JJavaError, FlussError):
        return None


def _try_checkpoints(lab, tmp_path, rng, count):
    wrong, refused = [], 0
    with lab.fresh() as cluster:
        whole = tmp_path / "whole"
        _checkpoint(lab, cluster, whole)
        with cluster.connection.append_writer(LOGGED) as writer:
            writer.append([{"id": number, "name": "later"} for number in range(1000, 1020)])
        later = {str(number) for number in range(1000, 1020)}
        files = _files(whole)
        cases = [(file, damage) for file in files for damage in DAMAGES]
        for number, (file, damage) in enumerate(rng.sample(cases, min(count, len(cases)))):
            copy = tmp_path / f"copy-{number}"
            shutil.copytree(whole, copy)
            # Hadoop's own checksum lies beside; a restored or synchronised checkpoint has none.
            (copy / file).with_name(f".{file.name}.crc").unlink(missing_ok=True)
            DAMAGES[damage](copy / file, rng)
            found = _resumed(lab, cluster, copy)
            if found is None:
                refused += 1
            elif not later <= {cell for row in found for cell in row}:
                wrong.append(
                    f"{file} {damage}: {len(found)} records, expected the {len(later)} that came later among them"
                )
                print(wrong[-1], flush=True)
    print(f"{refused} refused, {len(wrong)} wrong")
    return wrong


def test_a_damaged_checkpoint_of_a_stream_passes_over_no_record(lab, tmp_path, rng):
    wrong = _try_checkpoints(lab, tmp_path, rng, 3)
    assert not wrong, "\n".join(wrong)


@pytest.mark.campaign
def test_every_damage_of_a_checkpoint_of_a_stream_passes_over_no_record(lab, tmp_path, rng):
    wrong = _try_checkpoints(lab, tmp_path, rng, 1000)
    assert not wrong, "\n".join(wrong)
