"""An option, and the kinds of values: true or false, whole numbers, durations, sizes, texts, choices, time zones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from fluss_lab.errors import InvalidPropertyError
from fluss_lab.model.config.option_secrets import is_secret
from fluss_lab.model.times import format_duration, parse_duration, parse_size, time_zone
from fluss_lab.model.values.casts import is_unicode

T = TypeVar("T")

PORT_MAX: Final = 2**16 - 1
#: SQLite keeps no greater number.
NUMBER_MAX: Final = 2**63 - 1


@dataclass(frozen=True)
class Option(Generic[T]):
    """One option.

    Attributes:
        key: Its full name.
        default: Its value when it is not set.
        kind: How its type is called in messages.
        read: Parses what a person or the store gives; raises InvalidPropertyError, ValueError or TypeError.
        meaning: One line.
        alterable: Whether a live table's value may change (table options only).
        minimum: The least value; None for no bound.
        choices: The values that exist; empty for all.
        maximum: The greatest value; None for no bound.
    """

    key: str
    default: T
    kind: str
    read: Callable[[Any], T]
    meaning: str
    alterable: bool = False
    minimum: int | None = None
    choices: tuple[str, ...] = ()
    maximum: int | None = None

    def parse(self, value: object) -> T:
        """Return the value in the option's type.

        Raises:
            InvalidPropertyError: It is not of the type, out of range, or no choice; the text names the option.
        """
        try:
            parsed = self.read(value)
        except (InvalidPropertyError, ValueError, TypeError) as error:
            if is_secret(self.key):
                # Nor in the error's cause, which tracebacks show.
                raise InvalidPropertyError(
                    f"property {self.key!r}: expected {self.kind}, found {type(value).__name__}"
                ) from None
            raise InvalidPropertyError(f"property {self.key!r}: expected {self.kind}, found {value!r}") from error
        if self.choices and parsed not in self.choices:
            raise InvalidPropertyError(
                f"property {self.key!r}: expected one of {', '.join(self.choices)}, found {value!r}"
            )
        if self.minimum is not None and isinstance(parsed, int) and parsed < self.minimum:
            raise InvalidPropertyError(f"property {self.key!r}: expected at least {self.minimum}, found {value!r}")
        if self.maximum is not None and isinstance(parsed, int) and parsed > self.maximum:
            bound = format_duration(self.maximum) if self.kind.startswith("a duration") else self.maximum
            raise InvalidPropertyError(f"property {self.key!r}: expected at most {bound}, found {value!r}")
        return parsed

    def of(self, values: Mapping[str, Any]) -> T:
        """Return the option's value among given ones, or its default."""
        return self.parse(values[self.key]) if self.key in values else self.default


def is_storable(text: str) -> bool:
    """Return whether a text can be sent, kept and named to the system: no NUL, and no half of a character."""
    return "\0" not in text and is_unicode(text)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in {"true", "false"}:
        return value.strip().lower() == "true"
    raise ValueError(value)


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(value)
    return int(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    if not is_storable(value):
        raise ValueError(value)
    return value


def choice_of(value: Any) -> str:
    """Return a choice's name, however it is written."""
    return _text(value).strip().lower()


def boolean(key: str, default: bool, meaning: str, *, alterable: bool = False) -> Option[bool]:
    """Make a true-or-false option."""
    return Option(key, default, "true or false", _boolean, meaning, alterable)


def integer(
    key: str,
    default: int,
    meaning: str,
    *,
    alterable: bool = False,
    minimum: int | None = 0,
    maximum: int = NUMBER_MAX,
) -> Option[int]:
    """Make a whole-number option."""
    return Option(key, default, "a whole number", _integer, meaning, alterable, minimum, maximum=maximum)


def duration(
    key: str, default: str, meaning: str, *, alterable: bool = False, minimum: int = 0, longest: str | None = None
) -> Option[int]:
    """Make a duration option; its value is in milliseconds."""
    maximum = None if longest is None else parse_duration(longest)
    kind = "a duration like '10s', '3min' or '7d'"
    return Option(key, parse_duration(default), kind, parse_duration, meaning, alterable, minimum, maximum=maximum)


def size(key: str, default: str, meaning: str, *, minimum: int = 1, maximum: int = NUMBER_MAX) -> Option[int]:
    """Make a size option; its value is in bytes."""
    return Option(key, parse_size(default), "a size like '64mb'", parse_size, meaning, False, minimum, maximum=maximum)


def text(key: str, default: str, meaning: str) -> Option[str]:
    """Make a free-text option."""
    return Option(key, default, "text", _text, meaning)


def zone_of(value: Any) -> str:
    """Return the name of a time zone, which exists."""
    time_zone(_text(value))
    return str(value)


def choice(key: str, default: str, choices: tuple[str, ...], meaning: str) -> Option[str]:
    """Make an option with named values."""
    return Option(key, default, f"one of {', '.join(choices)}", choice_of, meaning, False, None, choices)
