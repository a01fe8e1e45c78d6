"""How deep JSON nests, as Python's own reader finds it; in texts nothing nests."""

import json
import random

import pytest

from fluss_lab.workbench.load.json_nesting import ROW_NESTING_MAX, row_nested_too_deeply

TEXTS = ("", "a", "\\", '"', "[[", ']}\\"', "\n{", "é{\\\\", '\\"[', "}]}]")


def depth(value):
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if parts is None else 1 + max(map(depth, parts), default=0)


def value(rng, deep):
    """Return a value; some nest just beyond what is allowed, or just not."""
    if deep == 0 or rng.random() < 0.02:
        return rng.choice((1, None, True, *TEXTS))
    if rng.random() < 0.5:
        return [value(rng, deep - 1)] + [value(rng, rng.randrange(2)) for _ in range(rng.randrange(3))]
    return {
        rng.choice(TEXTS) + str(n): value(rng, deep - 1 if n == 0 else rng.randrange(2))
        for n in range(1 + rng.randrange(3))
    }


def test_the_first_row_that_nests_too_deeply_is_found(seed):
    rng = random.Random(seed)
    for _ in range(60):
        rows = [
            {
                "a": value(
                    rng,
                    rng.choice(
                        (0, 1, 3, ROW_NESTING_MAX - 2, ROW_NESTING_MAX - 1, ROW_NESTING_MAX, ROW_NESTING_MAX + 40)
                    ),
                )
            }
            for _ in range(5)
        ]
        lines = [json.dumps(row, ensure_ascii=rng.random() < 0.5) for row in rows]
        data = rng.choice(("\n", "\r\n", "\n\n")).join(lines).encode()
        expected = next((n for n, row in enumerate(rows) if depth(row) > ROW_NESTING_MAX), None)
        assert row_nested_too_deeply(data) == expected, data


@pytest.mark.parametrize(
    ("text", "found"),
    [("", None), ("]" * 9, None), ('"' + "[" * 200, None), ("[" * 101, 0), ('{"a":1}\n' + "[\n" * 101, 0)],
)
def test_what_is_no_json_is_judged_too(text, found):
    assert row_nested_too_deeply(text.encode()) == found
