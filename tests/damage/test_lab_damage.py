"""Every kind of file of a lab, damaged in every way, asked by every reader: the truth or an error, never a third thing."""

from __future__ import annotations

import random
from functools import partial

import pytest

from tests.damage.damages import DAMAGES
from tests.damage.whole_lab import WholeLab

#: How many cases the quick suite draws.
DRAWN = 5


def _run(lab: WholeLab, cases: list[tuple[str, str]], rng: random.Random) -> tuple[int, int]:
    kinds, exact, refused, wrong = lab.kinds(), 0, 0, []
    for kind, damage in cases:
        file = rng.choice(kinds[kind])
        problems, errors = lab.problems(
            partial(DAMAGES[damage], _rng=rng)
            if damage in {"deleted", "emptied"}
            else partial(DAMAGES[damage], rng=rng),
            file,
        )
        wrong += [f"{file} {damage}: {problem}" for problem in problems]
        exact, refused = exact + (not errors), refused + bool(errors)
    print(f"{len(cases)} cases of {len(kinds)} kinds of file: {exact} exact, {refused} refused, {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong)
    return exact, refused


def test_a_lab_that_is_not_damaged_answers_exactly(whole_lab):
    assert len(whole_lab.kinds()) >= 22, sorted(whole_lab.kinds())
    assert whole_lab.problems(lambda _path: None, next(iter(whole_lab.kinds().values()))[0]) == ([], 0)


def test_a_damaged_file_of_a_lab_leads_to_the_truth_or_to_an_error(whole_lab, rng):
    kinds = sorted(whole_lab.kinds())
    _run(whole_lab, [(rng.choice(kinds), rng.choice(sorted(DAMAGES))) for _ in range(DRAWN)], rng)


@pytest.mark.campaign
def test_every_damage_of_every_kind_of_file_of_a_lab(whole_lab, rng):
    _run(whole_lab, [(kind, damage) for kind in sorted(whole_lab.kinds()) for damage in DAMAGES], rng)
