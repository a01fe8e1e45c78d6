"""Makes `.venv` at the root of the checkout: what the lock file names, and this checkout itself, editable.

Run by the Makefile with any Python that may serve; only the standard library is used. Promises:

* a second run does nothing and needs no network;
* a run that was interrupted anywhere leaves no trace in the result: an environment without its stamp
  is made again from nothing, because an interrupted pip may leave packages that look installed;
* a changed lock file, ``pyproject.toml`` or place of the checkout is followed, by pip in place; when pip refuses
  (no network), the environment stays what it was;
* an environment that fits is kept whatever ``python3`` means today; only a Python that was asked for
  by name (``make PYTHON=...``) replaces one of another Python.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

#: Goes up when the steps below change so that old environments must be made again.
_FORMAT = 1
_ROOT = Path(__file__).resolve().parent.parent
_VENV = _ROOT / ".venv"
_PYTHON = _VENV / "bin" / "python"
_LOCK = _ROOT / "requirements.lock"
_STAMP = _VENV / "fluss-lab-environment.json"


def _base_python() -> str:
    """Return the interpreter that environments are made from, also when this one runs in an environment."""
    return getattr(sys, "_base_executable", None) or sys.executable


def _version(python: str | Path) -> str:
    """Return ``3.11`` or the like, as the interpreter itself says; raises OSError or CalledProcessError."""
    words = [python, "-I", "-S", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def _wanted() -> str:
    """Return the digest of everything that the content of the environment follows from, less its Python."""
    digest = hashlib.sha256(f"{_FORMAT}\n{_ROOT}\n".encode())
    for path in (_LOCK, _ROOT / "pyproject.toml"):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _stamp() -> dict[str, str]:
    """Return what the finished environment was made of; nothing when it is missing, unfinished or broken."""
    try:
        stamp = json.loads(_STAMP.read_text(encoding="utf-8"))
        # Its Python is a link: an upgrade of the system may have taken the target away, or put another there.
        fits = isinstance(stamp, dict) and stamp.get("version") == _version(_PYTHON)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return {}
    return stamp if fits else {}


def _run(*command: str | Path) -> None:
    """Run one step at the root; raises CalledProcessError when it fails, its own message being on the screen."""
    # A user's own pip settings may send packages elsewhere than into this environment.
    settings = {"PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    dropped = {"PYTHONHOME", "PYTHONPATH", "PIP_TARGET", "PIP_PREFIX", "PIP_REQUIRE_HASHES", "VIRTUAL_ENV"}
    environment = {name: value for name, value in os.environ.items() if name not in dropped} | settings
    subprocess.run([str(part) for part in command], cwd=_ROOT, env=environment, check=True)


def _install() -> None:
    pip = (_PYTHON, "-m", "pip", "install", "--quiet")
    _run(*pip, "--require-hashes", "-r", "requirements.lock")
    _run(*pip, "--no-deps", "--no-build-isolation", "--editable", ".")


def _write_stamp(stamp: dict[str, str]) -> None:
    temporary = _STAMP.with_suffix(".new")
    temporary.write_text(json.dumps(stamp) + "\n", encoding="utf-8")
    temporary.replace(_STAMP)


def _make(base: str) -> None:
    """Make the environment from nothing."""
    print(f"environment: making .venv with {base} (one to two minutes)", flush=True)
    _STAMP.unlink(missing_ok=True)
    if _VENV.is_symlink():
        _VENV.unlink()
    elif _VENV.exists():
        shutil.rmtree(_VENV)
    _run(base, "-m", "venv", ".venv")
    _install()


def _update(stamp: dict[str, str]) -> None:
    """Bring a finished environment up to date. The stamp is absent meanwhile, so that a kill is noticed."""
    print("environment: bringing .venv up to date", flush=True)
    _STAMP.unlink()
    try:
        _install()
    except subprocess.CalledProcessError:
        # pip checks and fetches everything before it changes anything, and rolls a failed change back.
        _write_stamp(stamp)
        raise


def main() -> None:
    """Make the environment if it does not fit. Two runs at once wait for each other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--asked", action="store_true", help="this Python was asked for by name")
    asked = parser.parse_args().asked
    base, wanted = _base_python(), _wanted()
    with _LOCK.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = _stamp()
        try:
            if not stamp or (asked and stamp["python"] != os.path.realpath(base)):
                _make(base)
                stamp = {"python": os.path.realpath(base), "version": _version(_PYTHON)}
            elif stamp["wanted"] != wanted:
                _update(stamp)
            else:
                return
        except subprocess.CalledProcessError as error:
            sys.exit(f"environment: `{' '.join(error.cmd)}` failed ({error.returncode})")
        _write_stamp(stamp | {"wanted": wanted})


if __name__ == "__main__":
    main()
