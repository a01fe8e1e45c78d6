"""Seeds of tests: the same in every run of a tree, unless chance or a number is asked for."""

import os
import random
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss_lab.errors import InvalidPropertyError
from fluss_lab.testing.seeds import BY_CHANCE, SEEDS, VARIABLE, seed_named, seed_of


@pytest.fixture
def unasked(monkeypatch):
    """No seed is asked for, as in `make test`."""
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture
def by_chance(monkeypatch):
    monkeypatch.setenv(VARIABLE, BY_CHANCE)


def test_a_name_has_one_seed_and_two_names_have_two(unasked):
    assert (
        seed_named("tests/test_a.py::test_b")
        == zlib.crc32(b"tests/test_a.py::test_b")
        == seed_named("tests/test_a.py::test_b")
    )
    assert len({seed_named(f"test[{number}]") for number in range(100)}) == 100


@pytest.mark.parametrize("number", [0, 1])
def test_a_test_has_the_seed_of_its_id(request, unasked, number):
    assert seed_of(request.node) == seed_named(request.node.nodeid)
    assert f"[{number}]" in request.node.nodeid


def test_what_a_file_shares_has_a_seed_too(request, unasked):
    assert seed_of(request.node.parent) == seed_named(request.node.parent.nodeid) != seed_of(request.node)


def test_a_campaign_draws_by_chance(request, unasked):
    request.node.add_marker(pytest.mark.campaign)
    found = {seed_of(request.node) for _ in range(5)}
    assert len(found) > 1
    assert all(0 <= seed < SEEDS for seed in found)


def test_chance_can_be_asked_for(request, by_chance):
    assert len({seed_of(request.node) for _ in range(5)}) > 1


@pytest.mark.parametrize("given", ["0", "7", str(SEEDS), "007"])
def test_a_number_goes_before_all_else(request, monkeypatch, given):
    monkeypatch.setenv(VARIABLE, given)
    request.node.add_marker(pytest.mark.campaign)
    assert seed_of(request.node) == int(given) == seed_named("another")


def test_none_is_asked_for_by_an_empty_text(request, monkeypatch):
    monkeypatch.setenv(VARIABLE, "")
    assert seed_of(request.node) == zlib.crc32(request.node.nodeid.encode())


@pytest.mark.parametrize("given", ["-1", "seven", "1.5", "RANDOM", " 7", "²", "٣"])
def test_what_is_no_seed_is_refused(monkeypatch, given):
    monkeypatch.setenv(VARIABLE, given)
    with pytest.raises(InvalidPropertyError, match=f"{VARIABLE}: expected a seed, 0 or more, or 'random', found "):
        seed_named("test")


def test_what_is_printed_runs_it_again(request, by_chance, capsys, monkeypatch):
    seed = seed_of(request.node)
    (line,) = capsys.readouterr().out.split("\n")[1:-1]
    assert line == f"{request.node.nodeid}: {VARIABLE}={seed}"
    monkeypatch.setenv(*line.rpartition(" ")[2].split("="))
    assert seed_of(request.node) == seed


def test_the_fixtures_draw_from_it(request, unasked, seed, rng):
    assert seed == seed_of(request.node)
    assert rng.random() == random.Random(seed).random()


@settings(deadline=None, max_examples=1)
@given(st.integers())
def test_hypothesis_draws_from_it_too(number):
    used = test_hypothesis_draws_from_it_too._hypothesis_internal_use_seed
    if os.environ.get(VARIABLE) != BY_CHANCE:
        assert used == seed_named(os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0])
    assert used is not None
    assert isinstance(number, int)
