"""A process that is interrupted at random moments of its calls goes on as if nothing had been; see `tests.campaigns.storm`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("count", "timeout_s"), [(40, 300), pytest.param(1000, 3600, marks=pytest.mark.campaign)], ids=["some", "many"]
)
def test_after_every_interrupt_the_lab_works_and_holds_what_was_acknowledged(tmp_path, seed, count, timeout_s):
    command = [sys.executable, "-m", "tests.campaigns.storm", str(tmp_path / "lab"), str(count), str(seed)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=timeout_s,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"seed {seed}\n{done.stdout[-2000:]}\n{done.stderr[-8000:]}"
    said = json.loads(done.stdout.splitlines()[-1])
    print(said)
    assert said["struck"] >= count
    assert said["stopped writes"] > 0
    assert said["interrupted"] > 0
    # A few steps of Python lie between a write's end and its caller: by chance an interrupt falls there.
    assert said.get("written without a word", 0) <= max(1, count // 100)
