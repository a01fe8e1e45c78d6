"""The environment variables that a run's processes get: a list of names, not all that this process has."""

from __future__ import annotations

import os
import site
from collections.abc import Mapping
from typing import Final

#: What a run sees of the environment, beside its secrets: how to find programs, languages, the lab's options.
_PASSED: Final = frozenset({
    "PATH", "LANG", "LANGUAGE", "TZ", "JAVA_HOME", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "USER", "LOGNAME", "SHELL",
    "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SSL_CERT_FILE", "SSL_CERT_DIR", "MPLBACKEND", "PYTHONPATH",
    "PYTHONDONTWRITEBYTECODE", "PYTHONWARNINGS",
    "PYTHONHASHSEED", "PYTHONUTF8",
})  # fmt: skip
_PASSED_PREFIXES: Final = ("LC_", "CONDA_", "SPARK_", "PYSPARK_", "FLUSS_LAB_")


def run_environment(secrets: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of a run's processes: those of this process that are passed on, and its secrets."""
    passed = {name: value for name, value in os.environ.items() if name in _PASSED or name.startswith(_PASSED_PREFIXES)}
    # Packages that the user installed for himself are found below the home otherwise.
    if site.ENABLE_USER_SITE:
        passed["PYTHONUSERBASE"] = site.getuserbase()
    return {**passed, "PYTHONUNBUFFERED": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1", **secrets}
