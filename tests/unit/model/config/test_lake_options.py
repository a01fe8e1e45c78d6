"""The lake's options: none is ignored, none is lost to a default, and no secret is shown."""

import re
from pathlib import Path

import pyiceberg
import pytest

from fluss_lab.errors import InvalidPropertyError
from fluss_lab.model.config.config_chain import environment_name, resolve
from fluss_lab.model.config.lake_options import (
    ICEBERG_OPTIONS,
    check_lake_options,
    file_properties,
    with_defaults,
)
from fluss_lab.server.server_options import default_lake_options, with_lake

PREFIX = "datalake.iceberg."
#: Constants of pyiceberg's file systems and services that are no option of a catalog.
NO_OPTIONS = {"namespace-identifier", "iceberg.field.id", "iceberg.field.optional", "iceberg.field.current"}


def pyiceberg_keys() -> set[str]:
    """Return the keys of file systems, REST authentication and services which pyiceberg's source names."""
    root = Path(pyiceberg.__file__).parent
    files = [root / "io" / "__init__.py", *sorted((root / "catalog").rglob("*.py"))]
    constant = re.compile(r'^[A-Z][A-Z0-9_]+\s*(?::\s*\w+\s*)?=\s*"([a-z][a-z0-9]*[.-][a-zA-Z0-9._-]+)"', re.MULTILINE)
    found = {key for path in files for key in constant.findall(path.read_text())}
    return {key for key in found - NO_OPTIONS if not key.startswith(("org.", "pyiceberg.")) and "vended" not in key}


def test_the_table_has_every_key_of_the_installed_pyiceberg():
    missing = {key for key in pyiceberg_keys() if f"{PREFIX}{key}" not in ICEBERG_OPTIONS and key != "auth.manager"}
    assert missing == set()


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("datalake.formt", "datalake.format"),
        ("datalake.icberg.warehouse", "datalake.iceberg.warehouse"),
        ("datalake.iceberg.warehous", "datalake.iceberg.warehouse"),
        ("datalake.iceberg.s3.secret-acces-key", "datalake.iceberg.s3.secret-access-key"),
        ("datalake.iceberg.s3_endpoint", "datalake.iceberg.s3.endpoint"),
        ("datalake.iceberg.", "datalake.iceberg."),
    ],
)
def test_a_misspelt_key_is_refused_with_the_one_that_was_meant(key, meant, tmp_path):
    with pytest.raises(InvalidPropertyError, match=f"(?s){re.escape(key)}.*{re.escape(meant)}"):
        check_lake_options({key: "x"})
    with pytest.raises(InvalidPropertyError, match=re.escape(f"argument: unknown option {key!r}")):
        resolve({key: "x"}, {}, [])
    (tmp_path / "fluss-lab.toml").write_text(f'"{key}" = "x"\n')
    with pytest.raises(InvalidPropertyError, match=r"file .*fluss-lab.toml: unknown option"):
        resolve({}, {}, [tmp_path])


def test_every_key_with_a_letter_left_out_is_refused():
    for key in ICEBERG_OPTIONS:
        for at in range(len(PREFIX), len(key), 9):
            slip = key[:at] + key[at + 1 :]
            if slip not in ICEBERG_OPTIONS:
                with pytest.raises(InvalidPropertyError, match=re.escape(slip)):
                    check_lake_options({slip: "x"})


def test_options_of_another_format_are_refused_and_a_format_of_its_own_has_any():
    with pytest.raises(InvalidPropertyError, match=r"'datalake.paimon.warehouse': expected .*datalake.iceberg"):
        check_lake_options({"datalake.paimon.warehouse": "x"})
    with pytest.raises(InvalidPropertyError, match=r"datalake.iceberg.warehouse.*datalake.parquet"):
        check_lake_options({"datalake.format": "parquet", "datalake.iceberg.warehouse": "x"})
    check_lake_options({"datalake.format": "parquet", "datalake.parquet.anything.at-all": "x"})
    check_lake_options({f"{PREFIX}header.X-My": "x", f"{PREFIX}auth.basic.username": "u"})
    check_lake_options({f"{PREFIX}py-catalog-impl": "my.Catalog", f"{PREFIX}my.key": "x"})


def test_every_key_is_taken_from_the_environment():
    for key in ICEBERG_OPTIONS:
        found = resolve({}, {environment_name(key): "x"}, [])
        assert found[key].value == "x", key
        assert found[key].source == f"environment {environment_name(key)}"


def test_one_key_keeps_the_rest_of_the_default_lake(tmp_path):
    default = default_lake_options(tmp_path)
    assert with_lake({}, tmp_path) == default
    for key in sorted({*ICEBERG_OPTIONS} - {f"{PREFIX}{name}" for name in ("type", "uri", "py-catalog-impl")}):
        assert with_lake({key: "x"}, tmp_path) == {**default, key: "x"}, key
    assert with_lake({"log.durability": "fsync", "datalake.format": "iceberg"}, tmp_path) == {
        **default, "log.durability": "fsync",
    }  # fmt: skip
    own = {f"{PREFIX}type": "sql", f"{PREFIX}uri": "postgresql://db/lake"}
    assert with_lake(own, tmp_path) == {**default, **own}
    own = {f"{PREFIX}uri": "postgresql://db/lake"}
    assert with_lake(own, tmp_path) == {**{k: v for k, v in default.items() if k != f"{PREFIX}type"}, **own}


@pytest.mark.parametrize(
    "own",
    [
        {"type": "rest", "uri": "http://catalog"},
        {"uri": "https://catalog"},
        {"uri": "thrift://hive"},
        {"type": "glue"},
        {"py-catalog-impl": "my.Catalog"},
    ],
)
def test_a_catalog_of_another_kind_has_nothing_of_the_default_but_its_name(own, tmp_path):
    given = {f"{PREFIX}{key}": value for key, value in own.items()}
    assert with_defaults(given, default_lake_options(tmp_path)) == {
        **given, "datalake.format": "iceberg", f"{PREFIX}name": "fluss_lab",
    }  # fmt: skip


def test_another_format_has_nothing_of_the_default(tmp_path):
    given = {"datalake.format": "parquet", "datalake.parquet.folder": "x"}
    assert with_lake(given, tmp_path) == given


def test_tasks_get_what_files_need_and_no_secret_of_the_catalog():
    given = {
        "type": "rest", "uri": "http://catalog", "credential": "id:secret", "token": "t", "header.Authorization": "h",
        "auth.basic.password": "p", "warehouse": "w", "glue.secret-access-key": "g", "s3.endpoint": "e",
        "s3.secret-access-key": "k", "py-io-impl": "fluss_lab.lake.iceberg.files.durable_io.DurableFileIO",
    }  # fmt: skip
    wanted = {key: given[key] for key in ("s3.endpoint", "s3.secret-access-key", "py-io-impl")}
    assert file_properties(given) == wanted
    signed = {**given, "s3.signer": "S3V4RestSigner"}
    assert file_properties(signed) == {
        **wanted, "s3.signer": "S3V4RestSigner", "uri": "http://catalog", "token": "t", "credential": "id:secret",
    }  # fmt: skip
    assert file_properties({**given, "py-io-impl": "my.FileIO"}) == {**given, "py-io-impl": "my.FileIO"}


def test_the_configuration_page_names_every_option():
    text = (Path(__file__).parents[4] / "docs" / "configuration.md").read_text()
    named = set(re.findall(r"`([^`\s]+)`", text[text.index("Options of the lake") :]))
    for key in ICEBERG_OPTIONS:
        own = key.removeprefix(PREFIX)
        prefix, _, rest = own.partition(".")
        assert own in named or (f"{prefix}.*" in named and rest in named), key
