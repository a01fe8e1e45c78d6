"""The public conformance suite of lookup sources: what every `LookupTableSource` must do, as tests.

Who writes a source derives one class and runs it under pytest; the source's classes must be importable by name::

    class TestMySource(LookupConformance):
        def make_kit(self, folder):
            return LookupKit(my_source(folder), rows=all_its_rows, absent=rows_that_it_has_not)

        def change(self, kit):  # of a source whose rows change, and that has points
            return all_rows_that_it_has_then

Call ``pytest.register_assert_rewrite("fluss_lab.testing.conformance")`` before the import, and failures show their values.
Random tests print their seed; `fluss_lab.testing.seeds` says which it is.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab.lookup.contract_checks import check_partitions, partitions_of, rows_of, with_keys
from fluss_lab.lookup.lookup_interfaces import (
    FunctionContext,
    InputDataPartitioner,
    LookupFunction,
    LookupJoinContext,
    LookupTableSource,
    SupportsLookupCustomShuffle,
    TaskInfo,
)
from fluss_lab.lookup.portable import function_of, partitioner_of, portable_text
from fluss_lab.testing.rows import plain
from fluss_lab.testing.seeds import seed_of

#: Numbers of tasks: fewer, as many, and more than a source is likely to have shards, with and without a common divisor.
TASKS: Final = (1, 2, 3, 4, 6, 7, 17)
#: Keys of a batch, of which many come several times and some have no row.
KEYS: Final = 200
#: Of a process that imports and answers once; a stalled machine takes its time.
TIMEOUT_S: Final = 120

#: What is found: (position of the key, text of the row), each as often as it comes.
Answer: TypeAlias = Counter[tuple[int, str]]


@dataclass(frozen=True)
class LookupKit:
    """A source under test, and what its author knows of it.

    Attributes:
        source: The source.
        rows: All rows that it has, in its schema.
        absent: Rows of which it has none by any of the join keys tried; in its schema.
    """

    source: LookupTableSource
    rows: pa.Table
    absent: pa.Table

    def keys(self, join_keys: Sequence[str], rng: random.Random, count: int = KEYS) -> pa.RecordBatch:
        """Return keys of rows that there are, and of some that there are not, at random and several times."""
        pool = pa.concat_tables([self.rows.select(list(join_keys)), self.absent.select(list(join_keys))])
        pool = pool.filter(_without_nulls(pool, join_keys))
        chosen = pool.take(pa.array([rng.randrange(pool.num_rows) for _ in range(count)], pa.int64()))
        batch = chosen.combine_chunks().to_batches()[0]
        return pa.RecordBatch.from_arrays(batch.columns, schema=self.wanted_schema(join_keys))

    def expected_answer(self, keys: pa.RecordBatch, columns: Sequence[str], rows: pa.Table | None = None) -> Answer:
        """Return what is to be found, by comparing values of Python."""
        rows = self.rows if rows is None else rows
        by_key: dict[str, list[str]] = {}
        texts = _texts(rows.select(list(columns)))
        for key, text in zip(_texts(rows.select(keys.schema.names)), texts, strict=True):
            by_key.setdefault(key, []).append(text)
        found = ((position, text) for position, key in enumerate(_texts(keys)) for text in by_key.get(key, ()))
        return Counter(found)

    def function(self, join_keys: Sequence[str], columns: Sequence[str], **context: Any) -> LookupFunction:
        """Return the function of a join, as a task has it."""
        planned = self.source.lookup_function(LookupJoinContext(tuple(join_keys), tuple(columns), **context))
        made = function_of(portable_text(planned))
        made.use_secret(planned.secret())
        return made

    def wanted_schema(self, columns: Sequence[str]) -> pa.Schema:
        """Return the schema of what is found."""
        return pa.schema([self.source.schema.field(name) for name in columns])

    def find_rows(self, function: LookupFunction, keys: pa.RecordBatch, columns: Sequence[str]) -> Answer:
        """Return what an open function finds."""
        is_unique = self.source.is_unique(keys.schema.names)
        rows = rows_of(function, keys, self.wanted_schema(columns), is_unique=is_unique)
        return Counter(zip(rows.positions.tolist(), _texts(rows.rows), strict=True))

    def partitioner(self, join_keys: Sequence[str]) -> InputDataPartitioner | None:
        """Return the partitioner for some join keys, as a task has it; None where there is none."""
        source = self.source
        if not isinstance(source, SupportsLookupCustomShuffle) or not set(source.bucket_keys()) <= set(join_keys):
            return None
        partitioner = source.get_partitioner()
        return None if partitioner is None else partitioner_of(portable_text(partitioner))


@contextmanager
def opened(
    function: LookupFunction, index: int = 0, tasks: int = 1, point: str | None = None, folder: Path | None = None
) -> Iterator[LookupFunction]:
    """Open a function in a task, and close it."""
    try:
        function.open(FunctionContext(TaskInfo(index, tasks, tasks, 0), point, folder))
        yield function
    finally:
        function.close()


class LookupConformance(ABC):
    """Everything that a lookup source must do."""

    #: The columns to join on that are tried, in the source's order; each test runs with each of them.
    join_keys: ClassVar[Sequence[Sequence[str]]]

    @abstractmethod
    def make_kit(self, folder: Path) -> LookupKit:
        """Return a new source with rows, of which several have a key where keys need not be unique."""

    def change(self, kit: LookupKit) -> pa.Table | None:
        """Change the source's rows and return all that it has then; None: they never change."""
        return None

    @pytest.fixture
    def kit(self, tmp_path: Path) -> LookupKit:
        """Return the source under test."""
        return self.make_kit(tmp_path / "source")

    @pytest.fixture
    def rng(self, request: pytest.FixtureRequest) -> random.Random:
        """Return the test's random numbers; see `seed_of`."""
        return random.Random(seed_of(request.node))  # noqa: S311 - a test's

    # -- what it says of itself ----------------------------------------------------------------------------------------

    def test_it_describes_itself(self, kit: LookupKit) -> None:
        """Name, schema and bucket keys are there, and the rows given are the source's."""
        source = kit.source
        assert isinstance(source.name, str)
        assert source.name
        assert [(each.name, each.type) for each in source.schema] == [
            (each.name, each.type) for each in kit.rows.schema
        ]
        assert set(source.bucket_keys()) <= set(source.schema.names)
        for join_keys in self.join_keys:
            function = kit.function(join_keys, source.schema.names)
            assert isinstance(source.describe(function), str)
            assert source.describe(function)
            assert isinstance(function.identity(), str)
            assert function.identity() == kit.function(join_keys, source.schema.names).identity()

    def test_unique_is_what_is_unique(self, kit: LookupKit) -> None:
        """`is_unique` is True only of columns of which no two rows have the same values."""
        for join_keys in self.join_keys:
            rows = kit.rows.filter(_without_nulls(kit.rows, join_keys))
            if kit.source.is_unique(join_keys):
                assert max(Counter(_texts(rows.select(list(join_keys)))).values(), default=1) == 1

    # -- lookups -------------------------------------------------------------------------------------------------------

    def test_each_key_finds_its_rows(self, kit: LookupKit, rng: random.Random) -> None:
        """Keys of rows find all of them, others none, and equal keys the same each time."""
        columns = kit.source.schema.names
        for join_keys in self.join_keys:
            keys = kit.keys(join_keys, rng)
            with opened(kit.function(join_keys, columns)) as function:
                assert kit.find_rows(function, keys, columns) == kit.expected_answer(keys, columns)

    def test_columns_come_as_they_are_wanted(self, kit: LookupKit, rng: random.Random) -> None:
        """Any columns in any order, those joined on among them or not."""
        names = kit.source.schema.names
        for join_keys in self.join_keys:
            keys = kit.keys(join_keys, rng)
            for columns in (names[::-1], list(join_keys), names[:1], names[-1:], rng.sample(names, len(names))):
                with opened(kit.function(join_keys, columns)) as function:
                    assert kit.find_rows(function, keys, columns) == kit.expected_answer(keys, columns)

    def test_batches_of_any_size_find_the_same(self, kit: LookupKit, rng: random.Random) -> None:
        """Also a batch without keys, at the beginning and in between."""
        columns = kit.source.schema.names
        for join_keys in self.join_keys:
            keys = kit.keys(join_keys, rng)
            cuts = sorted([0, 0, 0, *(rng.randrange(keys.num_rows) for _ in range(5)), keys.num_rows])
            found: Answer = Counter()
            with opened(kit.function(join_keys, columns)) as function:
                for start, stop in pairwise(cuts):
                    part = kit.find_rows(function, keys.slice(start, stop - start), columns)
                    found.update({(position + start, row): count for (position, row), count in part.items()})
            assert found == kit.expected_answer(keys, columns)

    def test_only_keys_without_rows(self, kit: LookupKit, rng: random.Random) -> None:
        """A batch may find nothing at all."""
        columns = kit.source.schema.names
        for join_keys in self.join_keys:
            nobody = LookupKit(kit.source, kit.rows.slice(0, 0), kit.absent)
            keys = nobody.keys(join_keys, rng, 10)
            with opened(kit.function(join_keys, columns)) as function:
                assert kit.find_rows(function, keys, columns) == Counter()

    def test_a_function_is_closed_at_any_time(self, kit: LookupKit, rng: random.Random) -> None:
        """Before it is open, and twice; it counts in whole numbers what it did."""
        columns, join_keys = kit.source.schema.names, self.join_keys[0]
        function = kit.function(join_keys, columns)
        function.close()
        with opened(function):
            kit.find_rows(function, kit.keys(join_keys, rng), columns)
            counted = dict(function.counters())
        function.close()
        assert all(isinstance(name, str) and type(count) is int and count >= 0 for name, count in counted.items())

    # -- elsewhere -----------------------------------------------------------------------------------------------------

    def test_it_works_in_another_process(self, kit: LookupKit, rng: random.Random, tmp_path: Path) -> None:
        """What `to_json` says is all that functions and partitioners need, but for the secret, which is not in it.

        A partitioner that says that it is deterministic gives the same partitions there, of any seed of Python's hash.
        """
        columns = kit.source.schema.names
        asked: list[tuple[pa.RecordBatch, Mapping[str, Any]]] = []
        expected: list[object] = []
        for join_keys in self.join_keys:
            keys = kit.keys(join_keys, rng)
            function = kit.source.lookup_function(LookupJoinContext(tuple(join_keys), tuple(columns)))
            text, secret = portable_text(function), function.secret()
            assert not secret or json.dumps(secret)[1:-1] not in json.loads(text)["json"]
            asked.append((keys, {"function": text, "secret": secret}))
            expected.append(kit.expected_answer(keys, columns))
            partitioner = kit.partitioner(join_keys)
            if partitioner is not None and partitioner.is_deterministic():
                asked.append((keys, {"partitioner": portable_text(partitioner), "tasks": 7}))
                expected.append(partitions_of(partitioner, keys, 7).tolist())
        answers = _elsewhere(tmp_path, asked)
        assert [
            numbers if rows is None else Counter(zip(numbers, _texts(rows), strict=True)) for rows, numbers in answers
        ] == expected

    # -- distribution --------------------------------------------------------------------------------------------------

    def test_partitions_are_in_range_and_of_the_keys_alone(self, kit: LookupKit, rng: random.Random) -> None:
        """Whatever the number of tasks, the order of the rows and how they are batched."""
        for join_keys, partitioner in self._partitioners(kit):
            keys = kit.keys(join_keys, rng)
            for tasks in TASKS:
                numbers = partitions_of(partitioner, keys, tasks)
                if not partitioner.is_deterministic():
                    continue
                order = np.array(rng.sample(range(keys.num_rows), keys.num_rows))
                check_partitions(partitioner, keys.take(pa.array(order)), tasks, numbers[order])
                check_partitions(partitioner, keys.slice(7, 50), tasks, numbers[7:57])

    def test_tasks_of_a_custom_shuffle_find_what_one_task_finds(self, kit: LookupKit, rng: random.Random) -> None:
        """Each is asked for the keys that the partitioner gives it, also for none."""
        columns = kit.source.schema.names
        for join_keys, partitioner in self._partitioners(kit):
            keys = kit.keys(join_keys, rng)
            for tasks in TASKS:
                numbers = partitions_of(partitioner, keys, tasks)
                found: Answer = Counter()
                for index in range(tasks):
                    at = np.flatnonzero(numbers == index)
                    function = kit.function(join_keys, columns, is_custom_shuffle_enabled=True, parallelism=tasks)
                    with opened(function, index, tasks):
                        part = kit.find_rows(function, keys.take(pa.array(at)), columns)
                    found.update({(int(at[position]), row): count for (position, row), count in part.items()})
                assert found == kit.expected_answer(keys, columns)

    def test_without_a_custom_shuffle_any_task_finds_any_row(self, kit: LookupKit, rng: random.Random) -> None:
        """A hash of the join keys distributes the input, or nothing does: the partitioner was not used."""
        columns = kit.source.schema.names
        for join_keys in self.join_keys:
            keys = kit.keys(join_keys, rng)
            for index in (0, 3):
                with opened(kit.function(join_keys, columns, parallelism=4), index, 4) as function:
                    assert kit.find_rows(function, keys, columns) == kit.expected_answer(keys, columns)

    # -- streams -------------------------------------------------------------------------------------------------------

    def test_a_point_stays_what_it_was(self, kit: LookupKit, rng: random.Random) -> None:
        """A source with points finds the rows of each of them, whatever has changed since."""
        columns, join_keys = kit.source.schema.names, self.join_keys[0]
        function = kit.function(join_keys, columns, is_stream=True)
        before = function.present_point()
        if before is None:
            pytest.skip("the source has no points")
        assert isinstance(before, str)
        after_rows = self.change(kit)
        if after_rows is None:
            pytest.skip("the source's rows do not change")
        after = kit.function(join_keys, columns, is_stream=True).present_point()
        keys = kit.keys(join_keys, rng)
        for point, rows in ((before, kit.rows), (after, after_rows), (before, kit.rows)):
            with opened(kit.function(join_keys, columns, is_stream=True), point=point) as function:
                assert kit.find_rows(function, keys, columns) == kit.expected_answer(keys, columns, rows)

    def test_what_is_kept_for_the_next_micro_batch_is_never_wrong(
        self, kit: LookupKit, rng: random.Random, tmp_path: Path
    ) -> None:
        """One function after another in a folder, which may be emptied in between, finds what is there."""
        columns, join_keys = kit.source.schema.names, self.join_keys[0]
        folder = tmp_path / "kept"
        folder.mkdir(mode=0o700)
        rows = kit.rows
        for step in ("first", "again", "changed", "emptied", "again"):
            if step == "changed" and (changed := self.change(kit)) is not None:
                rows = changed
            if step == "emptied":
                shutil.rmtree(folder)
                folder.mkdir(mode=0o700)
            keys = kit.keys(join_keys, rng)
            function = kit.function(join_keys, columns, is_stream=True)
            with opened(function, point=function.present_point(), folder=folder):
                assert kit.find_rows(function, keys, columns) == kit.expected_answer(keys, columns, rows), step

    def _partitioners(self, kit: LookupKit) -> list[tuple[Sequence[str], InputDataPartitioner]]:
        """Return the join keys that a partitioner is defined for, with it; skip the test where there are none."""
        both = [(keys, partitioner) for keys in self.join_keys if (partitioner := kit.partitioner(keys)) is not None]
        if not both:
            pytest.skip(f"{kit.source.name} wants no distribution by {self.join_keys}")
        return both


# -- another process ---------------------------------------------------------------------------------------------------


def answer_here(folder: Path) -> None:
    """Answer what `_elsewhere` wrote into a folder: run in the other process."""
    for number, asked in enumerate(json.loads((folder / "asked.json").read_text())):
        keys = _read(folder / f"keys-{number}")
        if "partitioner" in asked:
            numbers = partitioner_of(asked["partitioner"]).partition(keys, asked["tasks"]).to_pylist()
            rows = None
        else:
            function = function_of(asked["function"])
            function.use_secret(asked["secret"])
            with opened(function):
                found = function.lookup(keys)
            numbers, rows = found.positions.tolist(), found.rows
        if rows is not None:
            _write(folder / f"rows-{number}", rows)
        (folder / f"numbers-{number}").write_text(json.dumps(numbers))


def _elsewhere(
    folder: Path, asked: Sequence[tuple[pa.RecordBatch, Mapping[str, Any]]]
) -> list[tuple[pa.RecordBatch | None, list[int]]]:
    """Return the rows, None of a partitioner, and numbers that another process, which hashes otherwise, answers with."""
    for number, (keys, _) in enumerate(asked):
        _write(folder / f"keys-{number}", keys)
    (folder / "asked.json").write_text(json.dumps([each for _, each in asked]))
    script = (
        "import sys; from pathlib import Path; from fluss_lab.testing.conformance.lookups import answer_here; "
        "answer_here(Path(sys.argv[1]))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"}
    call = [sys.executable, "-c", script, str(folder)]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    numbers = [json.loads((folder / f"numbers-{number}").read_text()) for number in range(len(asked))]
    rows = [folder / f"rows-{number}" for number in range(len(asked))]
    return [(_read(path) if path.exists() else None, each) for path, each in zip(rows, numbers, strict=True)]


def _write(path: Path, rows: pa.RecordBatch) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_batch(rows)


def _read(path: Path) -> pa.RecordBatch:
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).get_batch(0)


def _texts(rows: pa.Table | pa.RecordBatch) -> list[str]:
    """Return each row as a text that is equal where the rows are."""
    return [repr(list(row.values())) for row in plain(rows)]


def _without_nulls(rows: pa.Table, columns: Sequence[str]) -> pa.Array:
    arrays = [pa.chunked_array(rows.column(name)).combine_chunks() for name in columns]
    return with_keys(pa.RecordBatch.from_arrays(arrays, names=list(columns)))
