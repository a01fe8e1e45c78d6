"""Secrets come by name, and are replaced wherever text leaves a run."""

import io
import json

import pytest

from fluss_lab.errors import InvalidPropertyError, InvalidRequestError
from fluss_lab.jobs.run_secrets import LINE_LENGTH_MAX, Redactor, check_secret_names, option_secrets, secret_values
from fluss_lab.model.config.option_secrets import MASK
from fluss_lab.server.process.server_process import save_options


def test_names_are_names_of_variables():
    assert check_secret_names(["S3_KEY", "b", "S3_KEY"]) == ("S3_KEY", "b")
    for name in ("", "a=b", "a b", "hunter2!", "1a", "PATH", "HOME", "LD_PRELOAD", "PYTHONPATH", "PYTHONSTARTUP", "a\n", "é", None, 3,
                 "FLUSS_LAB_RUN", "x" * 200):  # fmt: skip
        with pytest.raises(InvalidRequestError, match="expected names of environment variables") as refused:
            check_secret_names([name])
        # It may be the secret itself, given by mistake.
        assert "hunter2" not in str(refused.value)
    with pytest.raises(InvalidRequestError, match="at most"):
        check_secret_names(f"n{at}" for at in range(101))


def test_values_come_from_the_environment():
    assert secret_values(["A"], {"A": "long enough"}) == {"A": "long enough"}
    with pytest.raises(InvalidRequestError, match="secret B: no such variable"):
        secret_values(["B"], {"A": "x"})
    with pytest.raises(InvalidRequestError, match="at least 6 characters") as refused:
        secret_values(["A"], {"A": "short"})
    assert "short " not in str(refused.value)


@pytest.mark.parametrize(
    "secret", ["hunter2-hunter2", 'quote"and\\back', "línea ünicode", "first line\nsecond line", "a+(b)*[c]"]
)
def test_every_form_is_masked(secret):
    redactor = Redactor([secret])
    for text in (
        secret,
        f"x{secret}y",
        repr(secret),
        json.dumps(secret),
        json.dumps({"a": [secret]}),
        str({"k": secret}),
    ):
        masked = redactor.text(text)
        assert MASK in masked
        assert all(line not in masked for line in secret.splitlines())
    assert redactor.plain({"a": [secret, 1, None, {"b": secret}], secret: 2}) == {
        "a": [MASK, 1, None, {"b": MASK}],
        MASK: 2,
    }


def test_of_two_the_longer_is_masked_whole():
    assert Redactor(["abcdef", "abcdefghi"]).text("abcdefghi") == MASK


def test_without_secrets_nothing_changes():
    value = {"a": ["text"]}
    assert Redactor([]).plain(value) is value
    assert Redactor(["", " ", "abc"]).text("abc text") == "abc text"


@pytest.mark.parametrize("at", [0, 1, 7, 14, 15, 16, 20, 30, 31, 32])
def test_a_line_without_an_end_comes_in_pieces_that_cut_no_secret(at):
    secret = "hunter2-hunter2"
    pad = "x" * (LINE_LENGTH_MAX - at)
    redactor = Redactor([secret])
    pieces = list(redactor.lines(io.StringIO(f"a\n\n{pad}{secret}{pad}{secret}{secret}{pad}\r{pad}é\nlast")))
    assert (pieces[:2], pieces[-1]) == (["a", ""], "last")
    assert max(map(len, pieces)) <= LINE_LENGTH_MAX + 200
    assert "".join(pieces[2:-1]) == f"{pad}{secret}{pad}{secret}{secret}{pad}\r{pad}é"
    assert "".join(map(redactor.text, pieces[2:-1])) == f"{pad}{MASK}{pad}{MASK}{MASK}{pad}\r{pad}é"


def test_without_secrets_long_lines_come_in_pieces_too():
    text = "y" * (3 * LINE_LENGTH_MAX)
    assert list(map(len, Redactor([]).lines(io.StringIO(text)))) == [LINE_LENGTH_MAX] * 3
    assert list(Redactor([]).lines(io.StringIO(f"{text}\nz"))) == [text[:LINE_LENGTH_MAX]] * 3 + ["", "z"]


def test_a_token_that_comes_later_is_masked(tmp_path):
    redactor = Redactor([], tmp_path / "token")
    assert redactor.text("the-token-of-the-lab") == "the-token-of-the-lab"
    (tmp_path / "token").write_text("the-token-of-the-lab")
    (tmp_path / "token").chmod(0o600)
    assert redactor.text("x the-token-of-the-lab") == f"x {MASK}"


def test_secrets_of_lake_and_remote_storage_are_known_by_their_variables(tmp_path):
    environment = {
        "FLUSS_LAB_REMOTE_S3_SECRET_ACCESS_KEY": "remote",
        "FLUSS_LAB_DATALAKE_ICEBERG_ADLS_ACCOUNT_KEY": "account",
        "FLUSS_LAB_DATALAKE_ICEBERG_ADLS_CONNECTION_STRING": "connection",
        "FLUSS_LAB_DATALAKE_ICEBERG_S3_SECRET_ACCESS_KEY": "lake",
        "FLUSS_LAB_DATALAKE_ICEBERG_TYPE": "rest",
        "HOME": "/root",
    }
    assert sorted(option_secrets(environment, tmp_path)) == ["account", "connection", "lake", "remote"]


def test_passwords_within_addresses_and_secrets_of_unknown_options_are_masked(tmp_path):
    environment = {
        "FLUSS_LAB_DATALAKE_ICEBERG_URI": "postgresql://me:SUPER%2FSECRET1@db/lake",
        "FLUSS_LAB_DATALAKE_ICEBERG_S3_PROXY_URI": "http://me:SUPERSECRET2@proxy",
        "FLUSS_LAB_DATALAKE_OTHER_ACCESS_KEY": "SUPERSECRET3",
    }
    redactor = Redactor(option_secrets(environment, tmp_path))
    text = redactor.text(f"{environment} refused SUPER/SECRET1")
    assert "SECRET" not in text
    assert f"postgresql://me:{MASK}@db/lake" in text


def test_secrets_in_the_lab_s_files_are_masked_too(tmp_path):
    (tmp_path / "fluss-lab.toml").write_text(
        '[datalake.iceberg]\nuri = "postgresql://me:SUPERSECRET1@db"\ns3.secret-access-key = "SUPERSECRET2"\n'
    )
    save_options(tmp_path, {"remote.s3.secret-access-key": "SUPERSECRET3"})
    assert set(option_secrets({}, tmp_path)) == {"SUPERSECRET1", "SUPERSECRET2", "SUPERSECRET3"}
    (tmp_path / "fluss-lab.toml").write_text("[datalake")
    with pytest.raises(InvalidPropertyError, match=r"fluss-lab\.toml"):
        option_secrets({}, tmp_path)
