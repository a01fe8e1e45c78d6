"""The page of the command line, ``docs/cli.md``, made from the commands themselves.

``python -m tools.cli_reference`` writes it; a test compares it with the file.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from fluss_lab.cli.commands import commands

PAGE: Final = Path(__file__).parents[1] / "docs" / "cli.md"
_PROGRAM: Final = "fluss-lab"
_HEAD: Final = """\
# The shell: `fluss-lab`

Made from the commands by `python -m tools.cli_reference`; `fluss-lab COMMAND --help` says the same.

Only `up` and `server` make a lab's folder. `status`, `down`, `doctor` and `config` say that nothing is there; every other command refuses
a folder that is not a lab's. A command that opens a lab whose server does not run starts one, which ends with the command.

## Output

What a command prints for people is a table: numbers to the right, a null as `-`, values of more than 60 characters cut, and what is
not printable escaped, so that no value is a command to the terminal. Its form may change.

With `--json` a command prints JSON lines: one object a line, one line a row (of `show`, `status` and `jobs list` one line in all, of
`tier` one a table). Its names stay; there may be new ones.

* Whole numbers are numbers, also those of 64 bits: a reader that has only floats rounds them above 2^53.
* Floats are numbers; NaN and the infinities, which JSON has no numbers for, are the texts `"NaN"`, `"Infinity"` and `"-Infinity"`.
* Decimals are texts, with all their digits.
* Times are ISO-8601 texts, with `Z` (UTC) where the type is an instant; a TIMESTAMP has no zone, and gets none. DATE and TIME likewise.
  Of jobs, runs and reports, what is called `..._ms` is a number: epoch milliseconds, or a duration.
* Bytes are base64; a row is an object, an array is an array, a map is an array of pairs.
* A null is `null`, and never left out.

Rows go to standard output; progress, warnings and what is said beside the rows to standard error. A reader that goes away
(`fluss-lab changelog nyc.flights | head`) ends a command quietly.

## Exit codes

| code | meaning |
|---|---|
| 0 | Done. Also: the reader of the output went away, or `tail --follow` was ended by Ctrl-C. |
| 1 | Failed, with the reason in one line on standard error; `FLUSS_LAB_DEBUG=1` shows the traceback. `doctor`: a check failed. |
| 2 | An invalid command line. |
| 3 | `status`: no server runs. |
| 130 | Interrupted by Ctrl-C. |

## Moments

Where a command takes a MOMENT it is an ISO-8601 time (`2013-01-01T12:00:00Z`, `2013-01-01`), `now`, `today`, `yesterday`,
`"10 minutes ago"`, epoch milliseconds, or a lake snapshot's id; a time without a zone is in that of `client.time-zone`.
"""


def commands_of(group: click.Group, prefix: str) -> Iterator[tuple[str, click.Command]]:
    """Yield the commands of a group that are not hidden, by their whole names; those of groups in it too."""
    for name, command in sorted(group.commands.items()):
        if command.hidden:
            continue
        yield f"{prefix} {name}", command
        if isinstance(command, click.Group):
            yield from commands_of(command, f"{prefix} {name}")


def page() -> str:
    """Return the page."""
    return "\n".join(
        [_HEAD, "## Commands", "", *(line for each in commands_of(commands, _PROGRAM) for line in _part(*each))]
    )


def _part(name: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=name)
    yield f"### `{name}`"
    yield ""
    yield "```text"
    yield " ".join([name, *command.collect_usage_pieces(context)])
    yield "```"
    yield ""
    yield inspect.cleandoc(command.help or "")
    yield ""
    options = [each.get_help_record(context) for each in command.params if isinstance(each, click.Option)]
    if shown := [record for record in options if record is not None]:
        yield "| option | meaning |"
        yield "|---|---|"
        yield from (f"| `{_cell(names)}` | {_cell(text)} |" for names, text in shown)
        yield ""
    if command.epilog:
        lines = [line.strip() for line in inspect.cleandoc(command.epilog).splitlines()]
        yield from ("```sh", *(line for line in lines if line.startswith((_PROGRAM, "eval "))), "```", "")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
