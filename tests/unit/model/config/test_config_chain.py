"""Where a value comes from: arguments, environment, files, defaults, in this order."""

import pytest

from fluss_lab.errors import InvalidPropertyError
from fluss_lab.model.config.config_chain import OPTIONS, environment_name, resolve, unknown_variables, working_folders


def test_without_anything_every_option_has_its_default():
    found = resolve({}, {}, [])
    assert set(found) == set(OPTIONS)
    assert {setting.source for setting in found.values()} == {"default"}
    assert found["server.grace"].value == "10s"
    assert found["client.writer.dynamic-create-partition.enabled"].value == "true"
    # Defaults as they are shown can be given back.
    again = resolve({key: setting.value for key, setting in found.items()}, {}, [])
    assert {key: setting.value for key, setting in again.items()} == {
        key: setting.value for key, setting in found.items()
    }


def test_arguments_count_before_environment_before_files(tmp_path):
    here, lab = tmp_path / "here", tmp_path / "lab"
    here.mkdir()
    lab.mkdir()
    (here / "fluss-lab.toml").write_text('[log]\ndurability = "fsync"\n[server]\nthreads = 3\n')
    (lab / "fluss-lab.toml").write_text(
        '"log.durability" = "ack"\nmax.bucket.num = 9\n"datalake.iceberg.s3.region" = "x"\n'
    )
    environment = {"FLUSS_LAB_SERVER_THREADS": "4", "FLUSS_LAB_MAX_PARTITION_NUM": "5", "OTHER": "1"}
    found = resolve({"max.partition.num": 6, "datalake.format": "iceberg"}, environment, [here, lab])
    reported = {key: (each.value, each.source) for key, each in found.items() if not each.is_default}
    assert reported == {
        "datalake.format": ("iceberg", "argument"),
        "datalake.iceberg.s3.region": ("x", f"file {lab / 'fluss-lab.toml'}"),
        "log.durability": ("fsync", f"file {here / 'fluss-lab.toml'}"),
        "max.bucket.num": ("9", f"file {lab / 'fluss-lab.toml'}"),
        "max.partition.num": ("6", "argument"),
        "server.threads": ("4", "environment FLUSS_LAB_SERVER_THREADS"),
    }


def test_names_in_the_environment():
    assert environment_name("log.segment.file-size") == "FLUSS_LAB_LOG_SEGMENT_FILE_SIZE"
    assert len({environment_name(key) for key in OPTIONS}) == len(OPTIONS)
    found = resolve({}, {"FLUSS_LAB_DATALAKE_ICEBERG_URI": "sqlite:///x"}, [])
    assert found["datalake.iceberg.uri"].value == "sqlite:///x"
    environment = {"FLUSS_LAB_SEED": "1", "FLUSS_LAB_SERVER_GRACE": "1s", "FLUSS_LAB_SERVER_GRASE": "1s"}
    assert unknown_variables(environment) == ["FLUSS_LAB_SERVER_GRASE"]


@pytest.mark.parametrize(
    ("arguments", "environment", "file", "text"),
    [
        ({"server.grase": "1s"}, {}, "", "argument: unknown option 'server.grase'; did you mean 'server.grace'"),
        ({}, {"FLUSS_LAB_SERVER_GRACE": "soon"}, "", "environment FLUSS_LAB_SERVER_GRACE: .*duration"),
        ({}, {}, "server.threads = 1", "fluss-lab.toml: .*at least 2"),
        ({}, {}, "server.nope = 1", "fluss-lab.toml: unknown option 'server.nope'"),
        ({"table.log.ttl": "1d"}, {}, "", r"argument: unknown option 'table.log.ttl'; it is of tables: .*create_table"),
        ({}, {}, "server = [", "fluss-lab.toml: "),
        ({}, {}, "datalake.iceberg.x = [1]", "expected a string, number or boolean"),
        ({"server.port": 70_000}, {}, "", "argument: .*at most 65535, found 70000"),
        ({"metrics.reporter.prometheus.port": 2**16}, {}, "", "at most 65535"),
        ({"server.tablet-servers": 10**9}, {}, "", "at most 1000"),
        ({"remote.data.dir": "a\0b"}, {}, "", r"remote.data.dir': expected text, found 'a\\x00b'"),
        ({"datalake.iceberg.warehouse": "\ud800"}, {}, "", "expected text without NUL and halves of characters"),
    ],
)
def test_what_is_wrong_is_reported_with_its_place(tmp_path, arguments, environment, file, text):
    (tmp_path / "fluss-lab.toml").write_text(file)
    with pytest.raises(InvalidPropertyError, match=text):
        resolve(arguments, environment, [tmp_path])


def test_a_working_directory_that_was_removed_has_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert working_folders() == [tmp_path]
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert working_folders() == []


NUMBERS = [key for key, option in OPTIONS.items() if option.kind.startswith(("a whole number", "a size"))]


@pytest.mark.parametrize("key", NUMBERS)
def test_no_number_is_taken_that_has_more_than_64_bits(key):
    with pytest.raises(InvalidPropertyError, match=f"{key}.*expected at most"):
        resolve({}, {environment_name(key): str(2**63)}, [])


@pytest.mark.parametrize(
    ("key", "taken", "refused", "bound"),
    [
        ("client.scanner.log.fetch.max-bytes", "2047mb", "2gb", "2147483647"),
        ("server.request-size-max", "2047mb", "2gb", "2147483647"),
        ("server.connections-max", "2147483646", "2147483647", "2147483646"),
        ("client.request-timeout", "24d", "25d", "24d"),
        ("client.scanner.log.fetch.wait-max-time", "24d", "25d", "24d"),
        ("server.client-timeout", "24d", "25d", "24d"),
        ("server.handshake-timeout", "24d", "25d", "24d"),
    ],
)
def test_what_goes_into_messages_has_their_32_bits(key, taken, refused, bound):
    assert resolve({key: taken}, {}, [])[key].value == taken
    with pytest.raises(InvalidPropertyError, match=f"{key}.*expected at most {bound}, found '{refused}'"):
        resolve({key: refused}, {}, [])
