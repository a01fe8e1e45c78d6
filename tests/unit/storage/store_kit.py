"""What the tests of stores share: obstore's store in memory, with requests counted and failures on call."""

from __future__ import annotations

from contextlib import contextmanager

import obstore
from obstore.store import MemoryStore

from fluss_lab.storage.file_store import ObjectPath
from fluss_lab.storage.object_store import ObjectFiles


def memory_place(prefix: str = "labs/one") -> ObjectPath:
    """A place in a store of its own, with the conditional puts of a real one."""
    return ObjectPath(ObjectFiles(MemoryStore(), "s3://memory", "memory"), prefix)


def keys_below(place: ObjectPath) -> list[str]:
    """All keys below a place, in order."""
    assert isinstance(place.store, ObjectFiles)
    library = place.store._library
    return sorted(each["path"] for some in obstore.list(library, place.key) for each in some)


@contextmanager
def before_each(monkeypatch, name: str, act):
    """Call something with the arguments of each request of a kind, before it is sent; what it raises is the answer."""
    real = getattr(obstore, name)

    def called(library, *arguments, **named):
        act(*arguments, **named)
        return real(library, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(obstore, name, called)
        yield


@contextmanager
def answers_lost(monkeypatch, name: str = "put", times: int = 1):
    """Let requests of a kind be done, and their answers lost, so many times."""
    from obstore.exceptions import GenericError

    real, left = getattr(obstore, name), [times]

    def called(library, *arguments, **named):
        found = real(library, *arguments, **named)
        if left[0]:
            left[0] -= 1
            raise GenericError("Generic S3 error: HTTP error: error sending request\n kind: Timeout,")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(obstore, name, called)
        yield
