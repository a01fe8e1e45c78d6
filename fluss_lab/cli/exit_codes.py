"""The exit codes of ``fluss-lab``, and the one line on standard error that says why it failed."""

from __future__ import annotations

import errno
import io
import os
import sys
from traceback import walk_tb
from typing import Final

import click

from fluss_lab.cli.output import end_quietly
from fluss_lab.errors import FlussError

PROGRAM: Final = "fluss-lab"
#: Something failed, and nothing to show.
FAILED: Final = 1
NO_SERVER: Final = 3
#: As of a process that the signal ended.
INTERRUPTED: Final = 130
DEBUG_VARIABLE: Final = "FLUSS_LAB_DEBUG"

EXIT_CODES: Final = """
Exit codes: 0 done; 1 failed, with the reason in one line on standard error; 2 an invalid command line; 3 (status) no
server runs; 130 interrupted. FLUSS_LAB_DEBUG=1 shows the traceback of an error.
"""


def run_command(command: click.Command, arguments: list[str] | None) -> int:
    """Run a command, print what it failed of on standard error, and return its exit code.

    Raises:
        SystemExit: The command chose its exit code.
        Exception: What failed, when the variable for debugging is set.
    """
    stdout = sys.stdout
    if isinstance(stdout, io.TextIOWrapper) and stdout.errors == "strict":
        stdout.reconfigure(errors="backslashreplace")  # of a terminal that is not of UTF-8
    try:
        code = command.main(args=arguments, prog_name=PROGRAM, standalone_mode=False)
        if stdout is not None:  # as it is where the shell closed it (`>&-`)
            stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        _say(_usage_text(error))
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        _say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        return end_quietly()
    except SystemExit:
        # click's own answer to a pipe that nobody reads: exit code 1, and another stream in the place of standard output.
        if sys.stdout is not stdout:
            return end_quietly()
        raise
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        _say(_output_fault(error) or _error_text(error))
        return FAILED


def _output_fault(error: Exception) -> str | None:
    """Return what a person is to know where standard output took no more; None: that is not it."""
    if not isinstance(error, OSError) or error.filename is not None or not _is_of_output(error):
        return None
    end_quietly()
    todo = "make room where it goes, or send it elsewhere" if error.errno == errno.ENOSPC else "send it elsewhere"
    return f"standard output cannot be written: {error.strerror or error}; what was printed is not whole: {todo}"


def _is_of_output(error: OSError) -> bool:
    """Return whether an error came of writing to a stream: the last function on its way is click's that writes, or that above."""
    functions = [frame.f_code for frame, _ in walk_tb(error.__traceback__)]
    return bool(functions) and functions[-1] in {click.echo.__code__, run_command.__code__}


def _say(text: str) -> None:
    from fluss_lab.display.shown_text import visible

    line = "; ".join(filter(None, map(str.strip, text.splitlines())))
    click.echo(f"{PROGRAM}: {visible(line)}", err=True)


def _usage_text(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    where = PROGRAM if context is None else context.command_path
    # The choices of an argument stand below each other.
    message = error.format_message().replace(":\n\t", ": ").replace(",\n\t", ", ")
    return f"{message.rstrip('.')}; see `{where} --help`"


def _error_text(error: Exception) -> str:
    """Return what a person is to know of an error: of others than the house's and the system's its kind too."""
    if isinstance(error, FlussError | OSError):
        return "; ".join([str(error), *getattr(error, "__notes__", ())])
    if type(error).__module__.startswith(("pyspark.", "py4j.")):
        from fluss_lab.spark.session.spark_errors import spark_message

        return spark_message(error).split("\n\n", 1)[0]
    return f"{type(error).__name__}: {error}; {DEBUG_VARIABLE}=1 shows where"
