"""Partitioners and functions that tests of their text need: right ones, and every kind of wrong one."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pyarrow as pa

from fluss_lab.errors import UnsupportedError
from fluss_lab.lookup import InputDataPartitioner


class Constant(InputDataPartitioner):
    """All rows into one partition."""

    def __init__(self, partition: int) -> None:
        self.number = partition

    def to_json(self) -> str:
        return json.dumps({"partition": self.number})

    @classmethod
    def from_json(cls, text: str) -> Any:
        return cls(**json.loads(text))

    def partition(self, join_keys: pa.RecordBatch, num_partitions: int) -> pa.Int32Array:
        return pa.array([self.number] * join_keys.num_rows, pa.int32())

    class Inner(InputDataPartitioner):
        """A class in a class can be imported too."""

        def to_json(self) -> str:
            return "{}"

        @classmethod
        def from_json(cls, text: str) -> Any:
            return cls()

        def partition(self, join_keys: pa.RecordBatch, num_partitions: int) -> pa.Int32Array:
            raise NotImplementedError


class Written(Constant):
    """Says what a test wants as its JSON."""

    text: ClassVar[Any] = "{}"

    def to_json(self) -> str:
        if isinstance(self.text, Exception):
            raise self.text
        return str(self.text) if isinstance(self.text, str) else self.text


class Unreadable(Constant):
    """Does not take its own JSON."""

    @classmethod
    def from_json(cls, text: str) -> Any:
        raise KeyError("partition")


class Refusing(Constant):
    """Has a reason of its own."""

    @classmethod
    def from_json(cls, text: str) -> Any:
        raise UnsupportedError("not on a Sunday")


class Another(Constant):
    """Makes something else."""

    @classmethod
    def from_json(cls, text: str) -> Any:
        return text


class NoPortable:
    """Derives from nothing; nothing of it is to be called."""

    @classmethod
    def from_json(cls, text: str) -> Any:
        raise AssertionError("called")


class Hidden(Constant):
    """What its module has under its name is another class."""


HIDDEN = Hidden
Hidden = Constant  # type: ignore[misc,assignment]
