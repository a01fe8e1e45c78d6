"""Every kind of file of a bucket, damaged in every way: what the client gets is exact or an error, never a third thing."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from tests.damage.bucket_lab import KEYED, LOGGED, BucketLab
from tests.damage.damages import DAMAGES, LOCAL, LOCAL_KEYED, REMOTE, SNAPSHOTS, Kind

#: What follows from other files, or is known twice: its damage must not even be an error.
DERIVABLE = frozenset({"first index", "last index", "first time index", "recovery point", "log start", "remote mark"})


@dataclass(frozen=True)
class Case:
    """One damage of one file of a bucket."""

    path: object
    kind: Kind
    place: str
    damage: str

    def __str__(self) -> str:
        return f"{self.path}: {self.kind.name} {self.damage}"


def _kinds():
    for path, groups in ((LOGGED, (LOCAL,)), (KEYED, (LOCAL, LOCAL_KEYED))):
        for group in groups:
            yield from ((path, kind, "local") for kind in group)
        yield from ((path, kind, "log") for kind in REMOTE)
    yield from ((KEYED, kind, "kv") for kind in SNAPSHOTS)


def _run(tmp_path, cases, rng):
    """Damage a bucket for each case; return how many cases were exact, and how many had errors."""
    by_path = {path: [case for case in cases if case.path == path] for path in (LOGGED, KEYED)}
    # The last bucket of each table stays as it is.
    lab = BucketLab(tmp_path / "lab", len(by_path[LOGGED]) + 1, len(by_path[KEYED]) + 1, rng)
    try:
        lab.cluster.stop()
        for path, damaged in by_path.items():
            for bucket, case in enumerate(damaged):
                file = lab.file(path, bucket, case.kind, case.place)
                assert file is not None, f"{case}: a bucket has no such file"
                DAMAGES[case.damage](file, rng)
        lab.cluster.start()
        wrong, exact, refused = [], 0, 0
        for path, bucket in lab.buckets():
            case = by_path[path][bucket] if bucket < len(by_path[path]) else None
            problems, errors = lab.problems(path, bucket)
            wrong += [f"{case}: {problem}" for problem in problems]
            if errors and (case is None or case.kind.name in DERIVABLE):
                wrong.append(f"{case}: {errors} errors, expected none")
            exact, refused = exact + (not errors), refused + bool(errors)
        assert not wrong, "\n".join(wrong)
        return exact, refused
    finally:
        lab.close()


def test_a_damaged_file_of_a_bucket_leads_to_the_truth_or_to_an_error(tmp_path, rng):
    cases = [Case(path, kind, place, rng.choice(sorted(DAMAGES))) for path, kind, place in _kinds()]
    exact, refused = _run(tmp_path, cases, rng)
    assert exact >= 2 + len(DERIVABLE)
    assert refused > 0


@pytest.mark.campaign
@pytest.mark.parametrize("turn", range(3))
def test_every_damage_of_every_file_of_a_bucket(tmp_path, turn, seed):
    rng = random.Random(seed + turn)
    cases = [Case(path, kind, place, damage) for path, kind, place in _kinds() for damage in DAMAGES]
    exact, refused = _run(tmp_path, cases, rng)
    print(f"{len(cases)} cases: {exact} exact, {refused} refused")
