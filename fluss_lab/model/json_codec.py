"""The codec of JSON: values of declared types to bytes and back, without coercion; and checksums within them.

A type is a dataclass, a `msgspec.Struct`, or made of such, of lists, tuples, maps, texts, numbers and bytes (base64). Its
fields are the members of an object in their order; a Struct with ``array_like=True`` is a list. Nothing is coerced: a number
in quotes, a bool or ``1.0`` is no ``int``, NaN is no number, a list of another length is no tuple. Members that a dataclass
does not have are left out; a Struct with ``forbid_unknown_fields=True`` refuses them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import google_crc32c
import msgspec

from fluss_lab.errors import CorruptDataError, FlussError
from fluss_lab.model.format_versions import check_format

T = TypeVar("T")

#: A whole number of at least 0 that fits 64 bits: an offset, a count, an id.
Whole: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
#: How values of types that JSON does not know travel: to plain values, and back.
Forms: TypeAlias = Mapping[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]]

_NO_FORMS: Final[Forms] = {}
#: msgspec learns a type when it first reads one, in steps between which other threads run. One that reads the same type
#: meanwhile finds it half known, and the process ends with a segmentation fault.
_LEARNING: Final = threading.Lock()
_SHOWN_LENGTH_MAX: Final = 200


class _Head(msgspec.Struct):
    version: Any = None


def learn_type(kind: T) -> T:
    """Return a type of which msgspec knows all it needs, so that several threads may read it: before it is first read."""
    with _LEARNING:
        msgspec.json.Decoder(kind)
    return kind


@cache
def known_type(kind: Any) -> Any:
    """Return a type that lasts as long as the process, as `learn_type` does. Cost: 0.1 us, but the first time."""
    return learn_type(kind)


def encode(value: object, *, version: int | None = None, indent: int = -1, forms: Forms = _NO_FORMS) -> bytes:
    """Return a value as JSON, in ASCII, byte for byte as `json.dumps` writes it.

    Args:
        value: Of types that the codec knows, or that `forms` has.
        version: Of the form; the first member of the object that the value is. None: it says none.
        indent: As of `json.dumps`; 0 has a blank behind commas and colons, -1 has none.
        forms: By type.

    Raises:
        TypeError: A type that is not known.
    """
    data = msgspec.json.encode(value, enc_hook=_writer(forms))
    if version is not None:
        data = b'{"version":%d%s%s' % (version, b"" if data == b"{}" else b",", data[1:])
    if not data.isascii() or b"\x7f" in data:
        data = json.dumps(msgspec.json.decode(data), separators=(",", ":")).encode()
    return data if indent < 0 else msgspec.json.format(data, indent=indent)


def to_plain(value: object, *, version: int | None = None, forms: Forms = _NO_FORMS) -> Any:
    """Return a value as `encode` writes it, as plain ones: dicts, lists, texts, numbers, bools, None."""
    plain = msgspec.to_builtins(value, enc_hook=_writer(forms), str_keys=True)
    return plain if version is None else {"version": version} | plain


def decode(
    kind: type[T],
    data: bytes | str,
    what: object,
    *,
    version: int | None = None,
    oldest: int | None = None,
    peer: bool = False,
    error: type[FlussError] = CorruptDataError,
    remedy: str = "",
    shown: bool = False,
    forms: Forms = _NO_FORMS,
) -> T:
    """Return the value of a type that JSON says.

    Args:
        kind: The type.
        data: What `encode` returned.
        what: Names it in errors: a path, or what it is.
        version: That it must be of, or from `oldest` on.
        oldest: See there; None: of no other.
        peer: Whether it comes from a process that must be of the same release, and so has every member.
        error: What is raised of JSON that is none, or not of the type.
        remedy: What to do then.
        shown: Whether the error shows how the data begins; not where secrets may be in it.
        forms: By type.

    Raises:
        UnsupportedError: A newer version wrote it, and no peer.
        error: It is not that; the text names the place.
    """

    def read(kind: Any) -> Any:
        try:
            return msgspec.json.decode(data, type=known_type(kind), dec_hook=_reader(forms))
        except _WRONG as wrong:
            raise _refusal(wrong, what, error, remedy, data if shown else None) from wrong

    if version is not None:
        check_version(read(_Head).version, what, version, oldest=oldest, peer=peer, error=error, remedy=remedy)
    found: T = read(kind)
    # What a process of the same release writes has every member, those with defaults too.
    if peer and (missing := _members(found).difference(read(dict[str, msgspec.Raw]))):
        raise error(f"{what}: Object missing required field `{min(missing)}`")
    return found


def from_plain(
    kind: type[T],
    value: object,
    what: object,
    *,
    version: int | None = None,
    peer: bool = False,
    forms: Forms = _NO_FORMS,
) -> T:
    """Return the value of a type that plain values say: `decode` of what is parsed already."""
    if version is not None:
        check_version(value.get("version") if isinstance(value, Mapping) else None, what, version, peer=peer)
    form: Any = kind
    try:
        found: T = msgspec.convert(value, known_type(form), dec_hook=_reader(forms), str_keys=True)
        return found
    except _WRONG as wrong:
        raise _refusal(wrong, what, CorruptDataError, "", None) from wrong


def check_version(
    found: object,
    what: object,
    version: int,
    *,
    oldest: int | None = None,
    peer: bool = False,
    error: type[FlussError] = CorruptDataError,
    remedy: str = "",
) -> None:
    """Check the version that JSON says.

    Raises:
        UnsupportedError: It is a newer one, and of no peer.
        error: It is another one, or none.
    """
    if peer:
        remedy = "driver and workers run different releases of fluss_lab"
    else:
        check_format(what, found, version)
    first = version if oldest is None else oldest
    if not isinstance(found, int) or isinstance(found, bool) or not first <= found <= version:
        expected = version if first == version else f"{first} to {version}"
        raise error(f"{what}: expected version {expected}, found {found!r}{remedy and '; ' + remedy}")


#: What JSON that is not of a type raises: here, in checks of the types' own, and in `forms`.
_WRONG: Final = (ValueError, TypeError, KeyError, AttributeError, RecursionError, FlussError)


def _members(value: object) -> set[str]:
    return {*getattr(value, "__struct_fields__", ()), *getattr(value, "__dataclass_fields__", ())}


def _refusal(wrong: Exception, what: object, error: type[FlussError], remedy: str, shown: object) -> FlussError:
    found = "" if shown is None else f", found {str(shown)[:_SHOWN_LENGTH_MAX]!r}"
    return error(f"{what}: {wrong}{found}{remedy and '; ' + remedy}")


def _writer(forms: Forms) -> Callable[[Any], Any]:
    def plain(value: Any) -> Any:
        for kind, (write, _) in forms.items():
            if isinstance(value, kind):
                return write(value)
        if isinstance(value, Mapping):
            return dict(value)
        raise TypeError(f"no JSON form of {type(value).__name__}")

    return plain


def _reader(forms: Forms) -> Callable[[type, Any], Any]:
    return lambda kind, value: forms[kind][1](value)


# -- checksums ---------------------------------------------------------------------------------------------------------

#: The member of an object that is a checksum of all else in it: for files of which a changed digit would be another truth.
_CRC: Final = "crc"


def with_checksum(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with its checksum; equal ones get equal checksums."""
    return {**value, _CRC: _crc(value)}


def check_checksum(what: object, value: Mapping[str, Any]) -> None:
    """Check that an object is as it was written. Releases before checksums wrote none.

    Args:
        what: Names it in the error.
        value: As it was read.

    Raises:
        ValueError: It was changed since.
    """
    rest = {key: each for key, each in value.items() if key != _CRC}
    if _CRC in value and value[_CRC] != (expected := _crc(rest)):
        raise ValueError(
            f"{what}: expected checksum {expected}, found {value[_CRC]!r}: it was changed since it was written"
        )


def _crc(value: Mapping[str, Any]) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return f"{google_crc32c.value(text.encode()):08x}"
