"""An Avro file that is sealed when it is closed: written in memory first, as the seal stands before the blocks."""

from __future__ import annotations

import io as streams
from types import TracebackType
from typing import cast

from pyiceberg.io import InputFile, OutputFile, OutputStream

from fluss_lab.lake.iceberg.files.file_seals import seal_avro
from fluss_lab.lake.iceberg.metadata.avro_file import marker_of


class SealedOutput(OutputFile):
    """A file for pyiceberg's Avro writers, whose header is to have the key of a seal.

    Args:
        file: Where the file goes.
    """

    def __init__(self, file: OutputFile) -> None:
        super().__init__(file.location)
        self._file = file
        self._size_bytes = 0

    def __len__(self) -> int:
        return self._size_bytes

    def exists(self) -> bool:
        """Tell whether the file is there."""
        return self._file.exists()

    def to_input_file(self) -> InputFile:
        """Return the file to be read."""
        return self._file.to_input_file()

    def create(self, overwrite: bool = False) -> OutputStream:
        """Return a stream whose closing writes the file; one that is not closed leaves nothing behind."""
        return cast(OutputStream, _Stream(self, overwrite))

    def write(self, data: bytes, overwrite: bool) -> None:
        """Write the file, sealed."""
        sealed = seal_avro(data, marker_of(data))
        with self._file.create(overwrite) as stream:
            stream.write(sealed)
        self._size_bytes = len(sealed)


class _Stream:
    """What is written, in memory."""

    def __init__(self, file: SealedOutput, overwrite: bool) -> None:
        self._file = file
        self._overwrite = overwrite
        self._held: streams.BytesIO | None = streams.BytesIO()

    def write(self, data: bytes) -> int:
        assert self._held is not None
        return self._held.write(data)

    def tell(self) -> int:
        assert self._held is not None
        return self._held.tell()

    def close(self) -> None:
        if (held := self._held) is not None:
            self._held = None
            self._file.write(held.getvalue(), self._overwrite)

    def __enter__(self) -> _Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
