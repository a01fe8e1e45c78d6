#!/bin/sh
# Finds a Python to make .venv with, and makes it (environment.py says how).
#   $1  the Python to use, a name or a path; empty: the first that serves
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

# Old enough Pythons and those without venv (Debian's python3 without python3-venv) do not serve.
serves() {
    "$1" -I -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

if [ -n "${1:-}" ]; then
    if serves "$1"; then
        exec "$1" -I "$here/environment.py" --asked
    fi
    echo "environment: PYTHON=$1 is no Python 3.11 or newer with venv and ensurepip; it says:" >&2
    "$1" -I -c 'import sys, venv, ensurepip; print(sys.version)' >&2 || true
    exit 1
fi
for candidate in python3 python3.13 python3.12 python3.11; do
    if serves "$candidate"; then
        exec "$candidate" -I "$here/environment.py"
    fi
done
cat >&2 <<'END'
environment: no Python 3.11 or newer with venv and ensurepip was found
  looked for: python3, python3.13, python3.12, python3.11 on the path
  install one (Debian, Ubuntu: apt install python3 python3-venv; macOS: brew install python@3.12;
  conda: conda env create -f environment.yml), or name one: make PYTHON=/path/to/python3.12
END
exit 1
