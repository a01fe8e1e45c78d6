"""The token's file: its owner's alone, or not believed."""

import pytest

from fluss_lab.errors import AuthenticationError
from fluss_lab.rpc.access.token import TOKEN_BYTES_MAX, header_of, is_valid, make_token, read_token, write_token
from tests.damage.damages import flipped_bits


def test_a_token_comes_back_from_its_file_which_is_private(tmp_path):
    path, token = tmp_path / "token", make_token()
    write_token(path, token)
    assert read_token(path) == token
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o644])
def test_a_file_that_others_may_touch_is_refused(tmp_path, mode):
    path = tmp_path / "token"
    write_token(path, make_token())
    path.chmod(mode)
    with pytest.raises(AuthenticationError, match=rf"others may read it \(mode {mode:o}\); expected 600"):
        read_token(path)


def test_a_file_that_is_missing_or_empty_is_refused(tmp_path):
    path = tmp_path / "token"
    with pytest.raises(AuthenticationError, match="expected the file the server wrote"):
        read_token(path)
    write_token(path, " \n")
    with pytest.raises(AuthenticationError, match="is empty"):
        read_token(path)


def test_only_the_whole_token_under_its_scheme_is_valid():
    token = make_token()
    _, value = header_of(token)
    assert is_valid(value, token)
    assert is_valid(value.encode(), token)
    for wrong in (None, "", b"", token, value[:-1], value + "x", value.lower(), f"Basic {token}"):
        assert not is_valid(wrong, token)


def _read(path):
    """Return the token in a file; None when it is refused."""
    try:
        return read_token(path)
    except AuthenticationError:
        return None


def test_a_damaged_file_is_another_token_or_refused(tmp_path):
    path, token = tmp_path / "token", make_token().encode()
    refused = 0
    for changed in flipped_bits(token):
        path.write_bytes(changed)
        path.chmod(0o600)
        if (found := _read(path)) is None:
            refused += 1
        else:
            assert found.isascii()
            assert found.isprintable()
    assert refused >= len(token)
    path.write_bytes(b"\xc9" + token)
    with pytest.raises(AuthenticationError, match="remove it while no server runs"):
        read_token(path)


def test_a_file_that_is_no_token_s_is_refused_without_being_read_whole(tmp_path):
    path = tmp_path / "token"
    write_token(path, "a" * TOKEN_BYTES_MAX)
    assert read_token(path) == "a" * TOKEN_BYTES_MAX
    write_token(path, "a" * (TOKEN_BYTES_MAX + 1))
    with pytest.raises(AuthenticationError, match="expected at most 4096 bytes, found more"):
        read_token(path)
