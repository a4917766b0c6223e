"""Who is let in: tokens, cookies, and no more attempts than allowed."""

from __future__ import annotations

import pytest

from netdyno.errors import Error
from netdyno.web.access import ATTEMPTS, IDLE, OPERATOR, SESSIONS, VIEWER, WINDOW, Access, shows
from tests.web.conftest import TOKENS, Clock


def role_of(access: Access, cookie: str) -> str:
    session = access.session(cookie)
    return session.role if session else ""


def test_each_token_has_its_role(access: Access) -> None:
    for role in (OPERATOR, VIEWER):
        found, cookie, _ = access.log_in(TOKENS[role], "192.0.2.1")
        assert (found, role_of(access, cookie)) == (role, role)


def test_a_wrong_token_or_cookie_is_nobody(access: Access) -> None:
    with pytest.raises(Error, match="ND-104-13"):
        access.log_in("guess", "192.0.2.1")
    for cookie in ("", "guess", "\ud800"):
        assert role_of(access, cookie) == ""


def test_wrong_tokens_are_counted_and_never_hold_up_who_has_the_right_one(
    access: Access, clock: Clock
) -> None:
    """Others of this machine, and all who come through a tunnel, have the same address."""
    for _ in range(ATTEMPTS):
        with pytest.raises(Error, match="ND-104-13"):
            access.log_in("guess", "192.0.2.1")
    with pytest.raises(Error, match="ND-104-17"):
        access.log_in("guess", "192.0.2.1")
    assert access.log_in(TOKENS[OPERATOR], "192.0.2.1")[0] == OPERATOR
    # others are not held to it, and it ends
    with pytest.raises(Error, match="ND-104-13"):
        access.log_in("guess", "192.0.2.2")
    clock.now += WINDOW
    with pytest.raises(Error, match="ND-104-13"):
        access.log_in("guess", "192.0.2.1")


def test_a_browser_that_asks_for_nothing_is_logged_out(access: Access, clock: Clock) -> None:
    _, cookie, _ = access.log_in(TOKENS[VIEWER], "192.0.2.1")
    clock.now += IDLE - 1
    assert role_of(access, cookie) == VIEWER
    clock.now += IDLE
    assert role_of(access, cookie) == ""


def test_log_out_ends_a_session(access: Access) -> None:
    _, cookie, _ = access.log_in(TOKENS[VIEWER], "192.0.2.1")
    access.log_out(cookie)
    assert role_of(access, cookie) == ""


def test_of_too_many_sessions_the_one_heard_least_recently_goes(access: Access) -> None:
    first, second = (access.log_in(TOKENS[VIEWER], "192.0.2.1")[1] for _ in range(2))
    role_of(access, first)
    for _ in range(SESSIONS - 1):
        access.log_in(TOKENS[VIEWER], "192.0.2.1")
    assert (role_of(access, first), role_of(access, second)) == (VIEWER, "")


def test_sessions_of_viewers_log_no_operator_out(access: Access) -> None:
    _, operator, _ = access.log_in(TOKENS[OPERATOR], "192.0.2.1")
    for _ in range(SESSIONS + 1):
        access.log_in(TOKENS[VIEWER], "192.0.2.1")
    assert role_of(access, operator) == OPERATOR


def test_a_key_is_of_one_session(access: Access) -> None:
    _, cookie, key = access.log_in(TOKENS[OPERATOR], "192.0.2.1")
    _, _, other = access.log_in(TOKENS[OPERATOR], "192.0.2.1")
    session = access.session(cookie)
    assert session and shows(session, key)
    assert not any(shows(session, one) for one in (other, "", cookie, key[:-1]))
