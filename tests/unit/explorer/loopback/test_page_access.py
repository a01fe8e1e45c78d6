"""Who is let in: the first who opens the link, from then on by the cookie, and nobody by another name or page."""

import pytest

from fluss_lab.explorer.loopback.page_access import PageAccess


@pytest.fixture
def access():
    return PageAccess(4711)


def token_of(access):
    return access.link.partition("token=")[2]


def test_a_link_gives_access_once(access):
    token = token_of(access)
    assert not access.take([token[:-1]])
    assert not access.take([])
    assert not access.take([token, token])
    assert not access.take(["é\udcff"])
    assert access.take([token])
    assert not access.take([token])


def test_a_cookie_is_known_among_others(access):
    cookie = access.cookie.partition(";")[0]
    assert access.knows(cookie)
    assert access.knows(f"a=b; fluss-lab-explorer=x; {cookie}; c")
    for wrong in ("", ";", "fluss-lab-explorer", "fluss-lab-explorer=", f"other-{cookie}", cookie[:-1], f"{cookie}x"):
        assert not access.knows(wrong)
    assert not PageAccess(4711).knows(cookie)


def test_a_cookie_is_for_scripts_of_nobody_and_for_a_path_of_its_own(access):
    value, *attributes = access.cookie.split("; ")
    assert attributes == [f"Path={access.place}", "HttpOnly", "SameSite=Strict"]
    assert len(value.partition("=")[2]) >= 43
    assert len(access.place) >= 34
    assert access.place != PageAccess(4711).place


def test_a_policy_allows_nothing_inline_and_nothing_from_elsewhere(access):
    policy = dict(part.split(" ", 1) for part in access.policy.split("; "))
    assert policy.pop("default-src") == "'none'"
    assert set(policy) == {
        "script-src",
        "style-src",
        "img-src",
        "connect-src",
        "base-uri",
        "form-action",
        "frame-ancestors",
    }
    sources = {source for value in policy.values() for source in value.split()}
    assert sources == {"'self'", "'none'", "ws://127.0.0.1:4711"}


@pytest.mark.parametrize(
    ("host", "origin", "site", "is_refused"),
    [
        ("127.0.0.1:4711", None, None, False), ("127.0.0.1:4711", "http://127.0.0.1:4711", "same-origin", False), ("127.0.0.1:4711", None, "none", False),
        ("localhost:4711", None, None, True), ("127.0.0.1", None, None, True), ("127.0.0.1:80", None, None, True), (None, None, None, True),
        ("evil.example:4711", None, None, True), ("127.0.0.1:4711", "http://127.0.0.1:4712", None, True), ("127.0.0.1:4711", "null", None, True),
        ("127.0.0.1:4711", "https://127.0.0.1:4711", None, True), ("127.0.0.1:4711", None, "cross-site", True), ("127.0.0.1:4711", None, "same-site", True),
    ],
)  # fmt: skip
def test_other_names_and_other_pages_are_refused(access, host, origin, site, is_refused):
    assert (access.refusal(host, origin, site) is not None) == is_refused
