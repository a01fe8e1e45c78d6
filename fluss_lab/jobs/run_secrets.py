"""Secrets of runs: taken by name from the environment, and kept out of whatever a run leaves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, TextIO

from fluss_lab.errors import FlussError, InvalidRequestError
from fluss_lab.model.config.config_chain import FILE_NAME, file_values, option_variables, text_of
from fluss_lab.model.config.option_secrets import MASK, SECRET_LENGTH_MIN, secrets_of, secrets_pattern
from fluss_lab.rpc.access.token import read_token
from fluss_lab.server.process.server_process import read_options

SECRETS_MAX: Final = 100
#: Of a line of a log: what prints without an end of line, as a progress bar may, is read in pieces.
LINE_LENGTH_MAX: Final = 1 << 20
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
#: What decides how the run's own processes work.
_REFUSED: Final = re.compile(
    r"HOME|PATH|TMPDIR|PYTHON\w*|LD_\w*|DYLD_\w*|FLUSS_LAB_RUN|FLUSS_LAB_FAILPOINTS|BASH_ENV|ENV|IFS"
)


def check_secret_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return names of environment variables, each once.

    Raises:
        InvalidRequestError: One is no such name, or one that decides how processes start.
    """
    found = tuple(dict.fromkeys(names))
    for name in found:
        if not isinstance(name, str) or _NAME.fullmatch(name) is None or _REFUSED.fullmatch(name):
            # The name may be a value that was given by mistake.
            raise InvalidRequestError(
                "secrets: expected names of environment variables (letters, digits, '_'; none that decides how processes start, "
                "as PATH does); the values are read from the environment"
            )
    if len(found) > SECRETS_MAX:
        raise InvalidRequestError(f"secrets: expected at most {SECRETS_MAX} names, found {len(found)}")
    return found


def secret_values(names: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the values of secrets by name.

    Raises:
        InvalidRequestError: One is not set, or too short to be kept out of outputs.
    """
    found = {}
    for name in names:
        if (value := environment.get(name)) is None:
            raise InvalidRequestError(
                f"secret {name}: no such variable in the environment of this process; set it where the run is started from (for "
                "scheduled runs: the scheduler)"
            )
        if len(value.strip()) < SECRET_LENGTH_MIN:
            raise InvalidRequestError(
                f"secret {name}: expected at least {SECRET_LENGTH_MIN} characters: a shorter value cannot be kept out of outputs"
            )
        found[name] = value
    return found


def check_parameters_hold_none(parameters: Mapping[str, Any], secrets: Iterable[str]) -> None:
    """Check that no parameter has the value of a secret: parameters are stored, and written into the output.

    Raises:
        InvalidRequestError: One has.
    """
    redactor = Redactor(secrets)
    for name, value in parameters.items():
        if redactor.plain(value) != value:
            raise InvalidRequestError(
                f"parameter {name}: it holds the value of a secret, and parameters are kept in the output notebook; the notebook "
                "reads secrets by os.environ"
            )


class Redactor:
    """Replaces secrets in text.

    Args:
        values: The secrets; of one with several lines also each line.
        token_file: The file of a token that may come into being later.
    """

    def __init__(self, values: Iterable[str], token_file: Path | None = None) -> None:
        self._values = list(values)
        self._token_file = token_file
        self._pattern = secrets_pattern(self._values)

    def text(self, text: str) -> str:
        """Return a text with each secret replaced by a mask."""
        self._look()
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def plain(self, value: Any) -> Any:
        """Return a value made of dicts, lists and texts with each secret replaced."""
        self._look()
        return value if self._pattern is None else self._mask(value, self._pattern)

    def lines(self, source: TextIO) -> Iterator[str]:
        """Yield the lines of a stream, without their ends: a long one in pieces, none of which ends within a secret.

        Cost: memory for some `LINE_LENGTH_MAX` characters, also of a line without an end.
        """
        rest = ""
        while piece := source.readline(LINE_LENGTH_MAX):
            line, rest = rest + piece, ""
            if len(piece) == LINE_LENGTH_MAX and not piece.endswith("\n"):
                at = self._end_of_piece(line)
                line, rest = line[:at], line[at:]
            yield line.rstrip("\n")
        if rest:
            yield rest

    def _end_of_piece(self, line: str) -> int:
        """Return where the beginning of a line may be cut off: what follows may be that of a secret."""
        self._look()
        if self._pattern is None:
            return len(line)
        # None is longer than what finds them all.
        end = max(0, len(line) - len(self._pattern.pattern))
        begun = takewhile(lambda match: match.start() < end, self._pattern.finditer(line))
        return max([end, *(found.end() for found in begun)])

    def _mask(self, value: Any, pattern: re.Pattern[str]) -> Any:
        if isinstance(value, str):
            return pattern.sub(MASK, value)
        if isinstance(value, list):
            return [self._mask(each, pattern) for each in value]
        if isinstance(value, dict):
            # Of the same kind: nbformat has a dict of its own.
            return type(value)({self._mask(key, pattern): self._mask(each, pattern) for key, each in value.items()})
        return value

    def _look(self) -> None:
        if self._token_file is not None and self._token_file.exists():
            with suppress(FlussError):
                self._values.append(read_token(self._token_file))
                self._pattern = secrets_pattern(self._values)
                self._token_file = None


def option_secrets(environment: Mapping[str, str], folder: Path) -> list[str]:
    """Return the secrets among the options that a run may come to know: of an environment, a lab's file, its servers.

    Args:
        environment: Usually `os.environ`.
        folder: The lab's.

    Raises:
        InvalidPropertyError: The lab's file is no TOML.
        LabError: The options of its servers cannot be read.
    """
    given = [(key, environment[name]) for name, key in option_variables(environment)]
    filed = [(key, text_of(value)) for key, value in file_values(folder / FILE_NAME).items()]
    return [part for key, value in (*given, *filed, *read_options(folder).items()) for part in secrets_of(key, value)]
