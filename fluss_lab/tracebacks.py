"""The traceback of an error as a notebook shows it: one paragraph, with the caller's line; every frame on request."""

from __future__ import annotations

import inspect
import linecache
import os
import sys
import sysconfig
import traceback
from pathlib import Path
from types import FrameType
from typing import Any, Final

_PACKAGE: Final = f"{Path(__file__).parent}{os.sep}"
_LIBRARIES: Final = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
#: Set on an error that was shown.
_SHOWN: Final = "_fluss_lab_shown"
_RED: Final = "\x1b[1;31m"
_GREY: Final = "\x1b[2m"
_PLAIN: Final = "\x1b[0m"


def notebook_traceback(error: BaseException, message: str | None = None) -> list[str]:
    """Return what IPython shows of an error: what, where and the remedy, as its message says, and the line that called.

    Shown again (``%tb``), it is the whole traceback.

    Args:
        error: It.
        message: Its text, where that is not its own.
    """
    shell = _shell()
    if getattr(error, _SHOWN, False):
        return _whole(error, shell)
    setattr(error, _SHOWN, True)
    red, grey, plain = (_RED, _GREY, _PLAIN) if shell is None or _has_colors(shell) else ("", "", "")
    text = (str(error) if message is None else message).strip()
    lines = [f"{red}{type(error).__name__}{plain}: {text}", *getattr(error, "__notes__", ())]
    if (place := _place(error, shell)) is not None:
        lines.append(f"{grey}{place}{plain}")
    return [*lines, f"{grey}(%tb shows every frame){plain}"]


def levels_to_caller() -> int:
    """Return how many calls above the one that asks the one from outside of fluss_lab is: its line is the one to be warned of."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == __package__:
        frame, level = frame.f_back, level + 1
    return level


def _shell() -> Any:
    """Return the running IPython; None outside of one."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()


def _has_colors(shell: Any) -> bool:
    return str(getattr(shell, "colors", "")).lower() != "nocolor"


def _whole(error: BaseException, shell: Any) -> list[str]:
    if shell is None:
        return traceback.format_exception(error)
    found: list[str] = shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__, tb_offset=1)
    return found


def _place(error: BaseException, shell: Any) -> str | None:
    """Return the line from which fluss_lab was called: the last one of the user's own before the first within."""
    caller: tuple[FrameType, int] | None = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        name = frame.f_code.co_filename
        if name.startswith(_PACKAGE):
            break
        if not name.startswith(_LIBRARIES):
            caller = (frame, line)
    if caller is None:
        return None
    frame, line = caller
    name = frame.f_code.co_filename
    source = linecache.getline(name, line, frame.f_globals).strip()
    where = _cell_name(name, shell) or f"File {name}"
    # What IPython makes of a magic says nothing.
    return f"{where}, line {line}" + (f": {source}" if source and not source.startswith("get_ipython()") else "")


def _cell_name(name: str, shell: Any) -> str | None:
    """Return what a notebook calls the cell that a file name stands for."""
    found = None if shell is None else shell.compile.format_code_name(name)
    return None if found is None else " ".join(found)
