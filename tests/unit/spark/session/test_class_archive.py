"""The archive of Spark's classes: made once, used when it is whole, and never needed."""

import fcntl
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from fluss_lab.spark.session.class_archive import OPTIONS_VARIABLE, ClassArchive, archive_of, takes_archive
from fluss_lab.spark.session.worker_placement import SparkPlacement
from fluss_lab.testing import wait_until

PARTS = ("bin", "jars")
UNFIT = "a JVM maps no classes of jars in a folder with such a path"
REPOSITORY = Path(__file__).parents[4]


@pytest.fixture
def home(tmp_path):
    """An installed Spark, as far as a place for an archive looks at it."""
    for name in ("bin", "jars", "python"):
        (tmp_path / "pyspark" / name).mkdir(parents=True)
    (tmp_path / "pyspark" / "jars" / "core.jar").write_bytes(b"classes")
    return tmp_path / "pyspark"


@pytest.fixture
def java(tmp_path):
    (tmp_path / "jdk" / "bin").mkdir(parents=True)
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="17.0.1"')
    (tmp_path / "jdk" / "bin" / "java").touch()
    return tmp_path / "jdk" / "bin" / "java"


@pytest.fixture
def env(tmp_path):
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.fixture
def place(home, java, env):
    return ClassArchive.of(home, PARTS, java, env)


def make(archive, data=b"archive of classes" * 1000):
    with archive.draft() as path:
        path.write_bytes(data)
    return archive.folder / "classes.jsa"


def test_a_place_links_to_the_spark_and_stays(place, home, java, env):
    assert {each.name for each in place.home.iterdir()} == set(PARTS)
    assert (place.home / "jars").resolve() == home / "jars"
    assert ClassArchive.of(home, PARTS, java, env).folder == place.folder
    assert place.folder.stat().st_mode & 0o077 == 0
    assert archive_of({"SPARK_HOME": str(place.home)}).folder == place.folder
    assert archive_of({"SPARK_HOME": str(home)}) is archive_of({}) is None


def test_whatever_an_archive_depends_on_has_a_place_of_its_own(place, home, java, env):
    places = [place.folder, ClassArchive.of(home, (*PARTS, "python"), java, env).folder]
    places.append(ClassArchive.of(home, PARTS, java, env | {OPTIONS_VARIABLE: "-XX:+UseSerialGC"}).folder)
    (home / "jars" / "core.jar").write_bytes(b"others")
    places.append(ClassArchive.of(home, PARTS, java, env).folder)
    java.parents[1].joinpath("release").write_text('JAVA_VERSION="17.0.2"')
    places.append(ClassArchive.of(home, PARTS, java, env).folder)
    (home / "jars" / "more.jar").touch()
    places.append(ClassArchive.of(home, PARTS, java, env).folder)
    assert len(set(places)) == len(places)


def test_an_archive_is_used_once_it_is_there(place):
    assert place.options() is None
    path = make(place)
    assert shlex.split(place.options())[0] == f"-XX:SharedArchiveFile={path}"
    assert [each.name for each in place.folder.glob(".draft-*")] == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b"A" + path.read_bytes()[1:]),
        lambda path: path.write_bytes(b""),
        lambda path: path.unlink(),
        lambda path: path.chmod(0o666),
        lambda path: path.with_name("classes.json").write_text("{"),
        lambda path: path.with_name("classes.json").write_text("[]"),
        lambda path: path.with_name("classes.json").unlink(),
        lambda path: path.with_name("classes.json").write_text('{"version": 2, "size": 18000, "crc32": 1}'),
    ],
    ids=["cut", "changed", "emptied", "gone", "open to all", "no JSON", "no object", "no manifest", "newer"],
)
def test_one_that_is_not_whole_is_not_used(place, spoil):
    spoil(make(place))
    assert place.options() is None


def test_a_folder_that_others_may_write_to_is_passed_over(home, java, env, tmp_path):
    cache = tmp_path / "cache" / "fluss_lab"
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    elsewhere = ClassArchive.of(home, PARTS, java, env | {"HOME": str(tmp_path / "home")})
    assert elsewhere.folder.parent == tmp_path / "home" / ".cache" / "fluss_lab"


def test_a_place_that_lost_a_link_gets_it_again(place, home, java, env):
    (place.home / "jars").unlink()
    assert (ClassArchive.of(home, PARTS, java, env).home / "jars" / "core.jar").read_bytes() == b"classes"


@pytest.mark.parametrize("name", ["a:b", "a cache", "ä", "a%b"])
def test_paths_that_a_jvm_maps_nothing_from_have_no_archive(home, java, env, tmp_path, name):
    found = ClassArchive.of(home, PARTS, java, {"XDG_CACHE_HOME": str(tmp_path / name), "HOME": str(tmp_path / "home")})
    assert found.folder.is_relative_to(tmp_path / "home")
    elsewhere = tmp_path / name / "pyspark"
    elsewhere.parent.mkdir()
    home.rename(elsewhere)
    assert ClassArchive.of(elsewhere, PARTS, java, env) is None


def test_a_jar_that_is_a_link_to_nothing_leaves_spark_without_an_archive(home, java, env):
    (home / "jars" / "gone.jar").symlink_to("nowhere")
    assert ClassArchive.of(home, PARTS, java, env) is None


def test_one_process_makes_it_and_only_when_it_is_not_there(place):
    with (place.folder / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError), place.draft():
            pass
    make(place)
    with pytest.raises(BlockingIOError, match="it is there"), place.draft():
        pass


def test_one_that_failed_leaves_nothing_and_is_not_begun_again_that_day(place):
    with pytest.raises(FileNotFoundError), place.draft() as path:
        path.with_name("classes.jsa").write_bytes(b"another's")  # and nothing at its own
    assert (place.options(), list(place.folder.glob(".draft-*"))) == (None, [])
    assert not begins(place)
    yesterday = time.time() - 90_000
    os.utime(place.folder / "failed", (yesterday, yesterday))
    assert begins(place)


def test_one_that_a_jvm_died_with_is_dropped_and_not_begun_again_that_day(place):
    path = make(place)
    assert not begins(place)
    place.drop()
    assert (path.exists(), place.options(), begins(place)) == (False, None, False)


def begins(archive):
    """Return whether a process is started to make it; it finds the place taken, and ends."""
    with (archive.folder / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        before = {child.pid for child in psutil.Process().children()}
        maker = archive.begin()
        if maker is None:
            return False
        wait_until(lambda: not maker.is_alive())
        assert {child.pid for child in psutil.Process().children()} <= before
        return True


def test_places_that_no_jvm_used_for_long_go_when_another_is_made(place):
    old, fresh = place.folder.with_name("spark-old"), place.folder.with_name("spark-fresh")
    for folder in (old, fresh):
        folder.mkdir()
    long_ago = time.time() - 40 * 86_400
    os.utime(old, (long_ago, long_ago))
    make(place)
    assert (old.exists(), fresh.exists()) == (False, True)


def test_options_of_ones_own_stay_alone():
    assert takes_archive({})
    assert takes_archive({OPTIONS_VARIABLE: "-Xmx1g"})
    for own in ("-XX:SharedArchiveFile=/x", "-XX:ArchiveClassesAtExit=/x", "-Xshare:off"):
        assert not takes_archive({OPTIONS_VARIABLE: f"-Xmx1g {own}"})


def test_a_spark_of_one_process_gets_it_unless_it_shall_not(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(OPTIONS_VARIABLE, raising=False)
    environment = SparkPlacement("local[2]", {}, None, has_archive=True).environment()
    if (archive := archive_of(environment)) is None:
        pytest.skip(UNFIT)
    make(archive)
    with_it = SparkPlacement("local[2]", {}, None, has_archive=True).environment()
    assert "SharedArchiveFile" in with_it[OPTIONS_VARIABLE]
    for master, wanted in (("local[2]", False), ("local-cluster[1,1,512]", True)):
        other = SparkPlacement(master, {}, None, has_archive=wanted).environment()
        assert (archive_of(other), other.get(OPTIONS_VARIABLE)) == (None, None)


def maker(folder):
    command = [sys.executable, "-m", "fluss_lab.spark.session.class_archive_maker", str(folder)]
    env = {**os.environ, "TMPDIR": str(folder.parent)}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=REPOSITORY, env=env)


#: Ends like a maker while it starts one process after another.
STARTER = """
import subprocess, sys, tempfile
from pathlib import Path
from fluss_lab.spark.session.class_archive import ClassArchive
from fluss_lab.spark.session.class_archive_maker import _end_with

folder, mark = Path(sys.argv[1]), sys.argv[2]
scratch = Path(tempfile.mkdtemp(dir=folder))
_end_with(sys.stdin.fileno(), ClassArchive(folder), folder / "draft", scratch)
print("ready", flush=True)
while True:
    try:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", mark])
    except RuntimeError:
        pass
"""


def test_what_is_started_while_it_ends_ends_too(tmp_path):
    mark = f"started-in-{tmp_path.name}-{os.getpid()}"
    command = [sys.executable, "-c", STARTER, str(tmp_path), mark]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY) as ending:
        assert ending.stdout.readline() == b"ready\n"
        ending.stdin.close()
        ending.wait(60)
    left = [each for each in psutil.process_iter(["cmdline"]) if mark in (each.info["cmdline"] or ())]
    for each in left:
        each.kill()
    assert not left


@pytest.fixture
def real(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if (archive := archive_of(SparkPlacement("local[2]", {}, None, has_archive=True).environment())) is None:
        pytest.skip(UNFIT)
    return archive


@pytest.mark.slow
def test_the_next_jvm_maps_the_archive_that_the_first_session_had_made(spark, tmp_path):
    def environment():
        return SparkPlacement("local[2]", {}, tmp_path, has_archive=True).environment()

    # Begun with the session of this run, or one before it: beside everything else it takes a while.
    if (archive := archive_of(environment())) is None:
        pytest.skip(UNFIT)
    if (failed := archive.folder / "failed").exists():
        # A process that ended while it was made left it for an hour: only then did no session of this run begin it.
        failed.unlink()
        archive.begin()
    wait_until(lambda: archive.options() is not None, 300)
    loaded, found = tmp_path / "loaded.txt", {**os.environ, **environment()}
    found[OPTIONS_VARIABLE] += f" -Xlog:class+load=info:file={loaded}"
    command = [f"{found['SPARK_HOME']}/bin/spark-submit", "--version"]
    subprocess.run(
        command, env={k: v for k, v in found.items() if v is not None}, capture_output=True, timeout=60, check=True
    )
    assert "org.apache.spark.deploy.SparkSubmit source: shared objects file (top)" in loaded.read_text()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("how", ["let go", "killed"])
def test_with_the_process_that_began_it_ends_the_one_that_makes_it(real, how):
    making = maker(real.folder)
    jvms = []

    def is_under_way():
        jvms[:] = [each for each in psutil.Process(making.pid).children(recursive=True) if each.name() == "java"]
        return bool(jvms)

    wait_until(is_under_way, 60)
    if how == "killed":
        making.send_signal(signal.SIGKILL)
    making.stdin.close()
    making.wait(60)
    wait_until(lambda: not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in jvms), 60)
    assert real.options() is None
    if how == "let go":
        wait_until(lambda: not [*real.folder.glob(".draft-*"), *real.folder.parent.glob("fluss_lab-spark-*")])
        assert not begins(real), "within the hour"
        half_an_hour_later = (real.folder / "failed").stat().st_mtime - 1_800
        os.utime(real.folder / "failed", (half_an_hour_later,) * 2)
        assert not begins(real)
        os.utime(real.folder / "failed", (half_an_hour_later - 1_801,) * 2)
        assert begins(real)
