"""The description of a format under test, by its author."""

from __future__ import annotations

import os
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

from fluss_lab import failpoints
from fluss_lab.lake import LakeStorage
from fluss_lab.model import TableInfo
from fluss_lab.testing.conformance.kit import LakeKit


class LakeFormat(ABC):
    """A format under test. Every test has a lake of its own under pytest's ``tmp_path``."""

    #: Under which it is installed.
    format_name: ClassVar[str]
    #: Whether it holds primary-key tables; False skips their tests.
    has_keyed_tables: ClassVar[bool] = True
    #: Properties that every table of the tests gets, for instance to make retries short.
    table_properties: ClassVar[Mapping[str, str]] = {}
    #: Failpoints that its write and commit pass, beside `fluss_lab.failpoints`'s of the layers above; a process is killed
    #: at each.
    kill_points: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def properties(self, folder: Path) -> Mapping[str, str]:
        """Return the storage's properties for a lake in a folder, which does not exist yet."""

    @abstractmethod
    def read_state(self, storage: LakeStorage, table: TableInfo) -> pa.Table:
        """Return the live rows of a primary-key table in its newest snapshot, by whatever reads the format.

        They have at least the user's columns, ``__bucket`` and ``__offset``, in any order; none without a snapshot.
        """

    @pytest.fixture
    def kit(self, tmp_path: Path) -> LakeKit:
        """Give a lake under a path with a space in it."""
        return LakeKit(self.format_name, self.properties(tmp_path / "a lake"), self.table_properties)

    @pytest.fixture
    def rng(self, request: pytest.FixtureRequest) -> random.Random:
        """Give the test's randomness: its seed is printed, and taken from ``FLUSS_LAB_SEED`` when that is set."""
        seed = int(os.environ.get("FLUSS_LAB_SEED") or random.SystemRandom().randrange(2**32))
        print(f"\n{request.node.nodeid}: FLUSS_LAB_SEED={seed}")
        return random.Random(seed)  # noqa: S311 - of a test

    @pytest.fixture(autouse=True)
    def _disarmed(self) -> Iterator[None]:
        """Leave no failpoint armed."""
        yield
        failpoints.disarm()

    def needs_keyed_tables(self) -> None:
        """Skip the test of a format without primary-key tables."""
        if not self.has_keyed_tables:
            pytest.skip(f"format {self.format_name!r} holds no primary-key tables")
