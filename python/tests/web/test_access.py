"""Who is let in: tokens, cookies, and no more attempts than allowed."""

from __future__ import annotations

import pytest

from netdyno.errors import Error
from netdyno.web.access import ATTEMPTS, IDLE, OPERATOR, SESSIONS, VIEWER, WINDOW, Access
from tests.web.conftest import TOKENS, Clock


def test_each_token_has_its_role(access: Access) -> None:
    for role in (OPERATOR, VIEWER):
        found, cookie = access.log_in(TOKENS[role], "192.0.2.1")
        assert (found, access.role(cookie)) == (role, role)


def test_a_wrong_token_or_cookie_is_nobody(access: Access) -> None:
    with pytest.raises(Error, match="ND-104-13"):
        access.log_in("guess", "192.0.2.1")
    for cookie in ("", "guess", "\ud800"):
        assert access.role(cookie) == ""


def test_the_last_attempt_is_taken_and_one_more_is_not(access: Access, clock: Clock) -> None:
    for _ in range(ATTEMPTS - 1):
        with pytest.raises(Error, match="ND-104-13"):
            access.log_in("guess", "192.0.2.1")
    assert access.log_in(TOKENS[OPERATOR], "192.0.2.1")[0] == OPERATOR
    with pytest.raises(Error, match="ND-104-13"):
        access.log_in("guess", "192.0.2.1")
    with pytest.raises(Error, match="ND-104-17"):
        access.log_in(TOKENS[OPERATOR], "192.0.2.1")
    # others are not held to it, and it ends
    assert access.log_in(TOKENS[OPERATOR], "192.0.2.2")[0] == OPERATOR
    clock.now += WINDOW
    assert access.log_in(TOKENS[OPERATOR], "192.0.2.1")[0] == OPERATOR


def test_a_browser_that_asks_for_nothing_is_logged_out(access: Access, clock: Clock) -> None:
    _, cookie = access.log_in(TOKENS[VIEWER], "192.0.2.1")
    clock.now += IDLE - 1
    assert access.role(cookie) == VIEWER
    clock.now += IDLE
    assert access.role(cookie) == ""


def test_log_out_ends_a_session(access: Access) -> None:
    _, cookie = access.log_in(TOKENS[VIEWER], "192.0.2.1")
    access.log_out(cookie)
    assert access.role(cookie) == ""


def test_of_too_many_sessions_the_one_heard_least_recently_goes(access: Access) -> None:
    first, second = (access.log_in(TOKENS[VIEWER], "192.0.2.1")[1] for _ in range(2))
    access.role(first)
    for _ in range(SESSIONS - 1):
        access.log_in(TOKENS[VIEWER], "192.0.2.1")
    assert (access.role(first), access.role(second)) == (VIEWER, "")
