"""A million spoiled Arrow bodies: each is refused or read, and none kills the process that reads it."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.campaign

BODIES = 500_000
PROCESSES = 2


def test_a_million_spoiled_bodies(seed):
    root = Path(__file__).parents[2]
    for number in range(PROCESSES):
        words = [sys.executable, "-m", "tests.campaigns.arrow", str(BODIES), str(seed + number)]
        ended = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=3_600)
        print(ended.stdout)
        assert ended.returncode == 0, ended.stderr[-3_000:]
        assert "InvalidRecordError" in ended.stdout
        assert "InternalError" not in ended.stdout
