"""The sources of a load: files by their format, frames, lists of dicts, Arrow data and streams of it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypedDict

import pyarrow as pa

from fluss_lab.errors import InvalidRecordError, InvalidRequestError, NotFoundError
from fluss_lab.model.named_paths import name_fault
from fluss_lab.model.values.arrow_import import import_stream
from fluss_lab.model.values.casts import value_text
from fluss_lab.model.values.pandas_frames import is_frame
from fluss_lab.model.values.row_input import spark_as_arrow
from fluss_lab.workbench.load.arrow_rows import FrameRows, ParquetFiles, StreamRows
from fluss_lab.workbench.load.csv_file import CsvFiles
from fluss_lab.workbench.load.json_file import JsonFiles
from fluss_lab.workbench.load.load_columns import RowSource

#: Formats by the ends of file names.
_FORMATS: Final = {
    "csv": "csv",
    "tsv": "csv",
    "parquet": "parquet",
    "pq": "parquet",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
}
_COMPRESSED: Final = {".gz", ".bz2", ".zst", ".lz4"}
_OPTION_WORDS: Final = {
    "format": "'csv', 'parquet' or 'json'",
    "delimiter": "a character",
    "encoding": "the name of one",
    "null_values": "a list of texts",
    "start_row": "a whole number of at least 0",
}
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]+://")


class FileOptions(TypedDict, total=False):
    """How a source is read; see `SourceOptions`."""

    format: str
    delimiter: str
    encoding: str
    null_values: Sequence[str]
    start_row: int


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How a source is read.

    Attributes:
        format: ``"csv"``, ``"parquet"`` or ``"json"``; None: as the file's name says.
        delimiter: Of a CSV file; None: guessed from its header.
        encoding: Of a CSV file.
        null_values: Texts of a CSV file that are null; None: the usual ones.
        start_row: Rows before this one, counted from 0, are not written: a load that ended on its way goes on there.
    """

    format: str | None = None
    delimiter: str | None = None
    encoding: str = "utf-8"
    null_values: Sequence[str] | None = None
    start_row: int = 0

    @staticmethod
    def of(given: Mapping[str, Any]) -> SourceOptions:
        """Return the options given, checked.

        Raises:
            InvalidRequestError: An unknown name, or a value of another type.
        """
        for name, value in given.items():
            if name not in _OPTION_WORDS:
                raise InvalidRequestError(f"load: unknown argument {name!r}; it has {', '.join(_OPTION_WORDS)}")
            if not _is_option(name, value):
                raise InvalidRequestError(f"load: {name}: expected {_OPTION_WORDS[name]}, found {value_text(value)}")
        return SourceOptions(**{name: value for name, value in given.items() if value is not None})


def _is_option(name: str, value: object) -> bool:
    if name == "start_row":
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if name == "null_values":
        return value is None or (isinstance(value, list | tuple) and all(isinstance(each, str) for each in value))
    return value is None or isinstance(value, str)


def open_source(source: Any, options: SourceOptions) -> RowSource:
    """Return the rows of a source.

    Raises:
        NotFoundError: There is no such file, or none in the folder.
        InvalidRequestError: It is nothing that can be loaded.
        InvalidRecordError: The file cannot be read as what it is.
    """
    if isinstance(source, str | os.PathLike):
        return _file_source(os.fspath(source), options)
    source = spark_as_arrow(source)
    if is_frame(source):
        return FrameRows(source, "the frame")
    if isinstance(source, pa.Table | pa.RecordBatch):
        return FrameRows(source, f"the Arrow {type(source).__name__.lower()}")
    if isinstance(source, pa.RecordBatchReader):
        return StreamRows(source, "the stream")
    if hasattr(source, "__arrow_c_stream__"):
        return StreamRows(import_stream(source, InvalidRecordError), "the stream")
    if isinstance(source, Mapping):
        return FrameRows(source, "the dict")
    if isinstance(source, list | tuple):
        return FrameRows(source, "the list")
    raise InvalidRequestError(
        f"load: expected the path of a CSV, Parquet or JSON file, or a frame, found {value_text(source)}"
    )


def _file_source(text: str | bytes, options: SourceOptions) -> RowSource:
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidRequestError(f"load: expected the path of a file, found {text!r}")
    if _URL.match(text):
        raise InvalidRequestError(f"load: {text[:80]!r} is no file of this machine: download it first")
    try:
        path = Path(text).expanduser()
    except RuntimeError as error:
        raise InvalidRequestError(f"load: {text[:200]!r}: there is no such user, or it has no home") from error
    try:
        paths = _files(path, options.format)
    except OSError as error:
        raise InvalidRequestError(f"load: {path}: {error.strerror or error}") from error
    for each in paths:
        if fault := name_fault(str(each)):
            raise InvalidRequestError(f"load: {str(each)!r}: {fault}")
    name = options.format or _format_of(paths[0])
    if name == "csv":
        delimiter = "\t" if options.delimiter is None and ".tsv" in paths[0].name.lower() else options.delimiter
        return CsvFiles(paths, delimiter, options.encoding, options.null_values)
    if name == "json":
        return JsonFiles(paths)
    if name == "parquet":
        return ParquetFiles(paths)
    known = ", ".join(dict.fromkeys(_FORMATS.values()))
    what = f"format {options.format!r}" if options.format else f"{path.name}: the name does not say its format"
    raise InvalidRequestError(f"load: {what}; expected one of {known}, as format=")


def _files(path: Path, name: str | None) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.exists():
        raise NotFoundError(f"load: there is no file {path}{_folder_note(path)}")
    if not path.is_dir():
        raise InvalidRequestError(f"load: {path} is neither a file nor a folder")
    # Files that begin so are other programs' notes, or not complete.
    found = sorted(each for each in path.iterdir() if each.is_file() and not each.name.startswith((".", "_")))
    if name is None:
        formats = {known for each in found if (known := _format_of(each)) is not None}
        if len(formats) > 1:
            raise InvalidRequestError(
                f"load: {path} has files of several formats ({', '.join(sorted(formats))}): say format="
            )
        found = [each for each in found if _format_of(each) is not None]
    if not found:
        raise NotFoundError(f"load: there are no CSV, Parquet or JSON files in {path}")
    return found


def _folder_note(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"; there is no folder {folder} either"
    names = sorted(each.name for each in folder.iterdir() if _format_of(each) is not None)
    listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return f"; in {folder.absolute()} there are {listed}" if names else f" in {folder.absolute()}"


def _format_of(path: Path) -> str | None:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    return _FORMATS.get(suffixes[-1].removeprefix(".")) if suffixes else None


def table_name(source: Any) -> str | None:
    """Return what a table of a file is called when no name is given; None: the source is no file."""
    if not isinstance(source, str | os.PathLike):
        return None
    name = Path(os.fspath(source)).name
    while Path(name).suffix and (_format_of(Path(name)) or Path(name).suffix in _COMPRESSED):
        name = Path(name).stem
    return name
