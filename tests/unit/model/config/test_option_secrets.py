"""What of options is a secret: by their names in every spelling, and within addresses; nothing else is hidden."""

import json
import traceback

import pytest

from fluss_lab.errors import InvalidPropertyError
from fluss_lab.model.config.config_chain import environment_name, option_variables, resolve
from fluss_lab.model.config.lake_options import ICEBERG_OPTIONS
from fluss_lab.model.config.option_secrets import (
    MASK,
    conceal,
    is_secret,
    mask_secret,
    secrets_among,
    secrets_of,
    secrets_pattern,
)
from fluss_lab.model.config.options import REMOTE_S3_SECRETS

PREFIX = "datalake.iceberg."
URI = f"{PREFIX}uri"
#: Addresses with a password, which is SUPERSECRET with what makes readers disagree, and how they are shown.
ADDRESSES = {
    "postgresql://me:SUPERSECRET@db:5432/lake": f"postgresql://me:{MASK}@db:5432/lake",
    "postgresql://:SUPERSECRET@db": f"postgresql://:{MASK}@db",
    "postgresql://me:SUPERSECRET/1@db/lake": f"postgresql://me:{MASK}@db/lake",
    "postgresql://me:SUPERSECRET@2@db/lake": f"postgresql://me:{MASK}@db/lake",
    "postgresql://me:my SUPERSECRET@db/lake": f"postgresql://me:{MASK}@db/lake",
    "https://me:SUPERSECRET@proxy:3128": f"https://me:{MASK}@proxy:3128",
    "postgresql://db/lake?user=me&password=SUPERSECRET&x=1": f"postgresql://db/lake?user=me&password={MASK}&x=1",
    "postgresql://db/lake?sslpassword=SUPERSECRET": f"postgresql://db/lake?sslpassword={MASK}",
    "https://catalog/?access_token=SUPERSECRET": f"https://catalog/?access_token={MASK}",
    "https://store/x?X-Amz-Signature=SUPERSECRET&a=b": f"https://store/x?X-Amz-Signature={MASK}&a=b",
    "mssql+pyodbc:///?odbc_connect=UID%3Dme%3BPWD%3DSUPERSECRET%3B": f"mssql+pyodbc:///?odbc_connect={MASK}",
}


@pytest.mark.parametrize(
    "key",
    [
        "s3.secret-access-key", "s3.access-key-id", "s3.session-token", "token", "credential", "adls.account-key",
        "adls.sas-token", "adls.connection-string", "adls.client-secret", "gcs.oauth2.token", "hf.token",
        "glue.secret-access-key", "header.Authorization", "auth.basic.password", "client.session-token",
        "gcp.bigquery.credentials-info",
    ],
)  # fmt: skip
def test_secrets_are_hidden(key):
    assert is_secret(PREFIX + key)
    assert mask_secret(PREFIX + key, "SUPERSECRET") == MASK
    assert resolve({PREFIX + key: "SUPERSECRET"}, {}, [])[PREFIX + key].shown == MASK


@pytest.mark.parametrize("name", [
    "access-key", "access.key", "access_key", "accessKey", "account.key", "api-key", "apikey", "private.key", "Password", "db.pwd",
    "db.pass", "connection.string", "session.kwargs", "some.SECRET.thing",
])  # fmt: skip
def test_secrets_of_unknown_options_are_known_by_name_in_every_spelling(name):
    """Of a lake format that is a package of its own, and of a catalog class of one's own."""
    key = f"datalake.other.{name}"
    assert is_secret(key)
    ((_, read),) = option_variables({environment_name(key): "x"})
    assert is_secret(read), "as the environment gives it"


def test_every_secret_of_iceberg_is_one_as_the_environment_gives_it_too():
    for key in filter(is_secret, ICEBERG_OPTIONS):
        assert is_secret(key.replace("-", ".").replace("_", ".")), key


def test_passwords_within_addresses_are_hidden_and_the_rest_is_shown():
    for address, shown in ADDRESSES.items():
        assert mask_secret(URI, address) == shown
        assert " " in address or mask_secret("", f"it says '{address}' and more") == f"it says '{shown}' and more"
    for value in ("sqlite:////home/me/lab/lake/catalog.db", "s3://bucket/path", "http://localhost:8181/a@b:c"):
        assert mask_secret(f"{PREFIX}uri", value) == value
    for key in ("s3.endpoint", "s3.region", "warehouse", "type", "gcs.oauth2.token-expires-at", "oauth2-server-uri"):
        assert not is_secret(PREFIX + key), key
    assert not is_secret("server.tls.key")


@pytest.mark.parametrize("address", ADDRESSES)
def test_what_of_an_address_no_output_may_have_is_known(address):
    pattern = secrets_pattern(secrets_of(URI, address))
    for text in (address, f"refused {address!r}", json.dumps({"uri": address})):
        assert "SUPERSECRET" not in pattern.sub(MASK, text)


def test_passwords_are_known_as_their_readers_decode_them():
    assert {"p%40ss%2Fword", "p@ss/word"} <= set(secrets_of(URI, "postgresql://me:p%40ss%2Fword@db"))
    assert secrets_of(f"{PREFIX}credential", "id:SUPERSECRET") == ["id:SUPERSECRET", "SUPERSECRET"]
    assert "SUPERSECRET" in secrets_of(f"{PREFIX}header.Authorization", "Bearer SUPERSECRET")
    joined = "AccountName=a;AccountKey=SUPERSECRET;EndpointSuffix=core"
    assert "SUPERSECRET" in secrets_of(f"{PREFIX}adls.connection-string", joined)
    assert secrets_among({URI: "sqlite:////home/me/lake.db", f"{PREFIX}type": "sql", "log.durability": "fsync"}) == []


def test_errors_and_what_they_came_from_are_masked():
    class Unusual(Exception):
        def __str__(self):
            return "at SUPERSECRET"

    def fail():
        try:
            try:
                raise Unusual
            except Unusual as error:
                raise ValueError("no SUPERSECRET here", 7) from error
        except ValueError as error:
            raise InvalidPropertyError("db: SUPERSECRET is wrong") from error

    with pytest.raises(InvalidPropertyError) as raised:
        fail()
    conceal(raised.value, None)
    conceal(raised.value, secrets_pattern(["SUPERSECRET"]))
    reported = "".join(traceback.format_exception(raised.value)[-1:])
    assert f"db: {MASK} is wrong" in reported
    assert raised.value.__cause__.args == (f"no {MASK} here", 7)
    assert raised.value.__cause__.__cause__ is None


@pytest.mark.parametrize("option", REMOTE_S3_SECRETS, ids=lambda option: option.key)
def test_a_secret_of_the_wrong_type_is_not_in_the_error(option, tmp_path):
    (tmp_path / "fluss-lab.toml").write_text(f'"{option.key}" = 8675309\n')
    with pytest.raises(InvalidPropertyError, match=f"{option.key}.*expected text, found int") as raised:
        resolve({}, {}, [tmp_path])
    assert "8675309" not in "".join(traceback.format_exception(raised.value))
