"""SIP on the dashboard: a request is previewed and sent by an operator alone, and names nothing of this machine."""

from __future__ import annotations

from typing import Any

import pytest

from netdyno.errors import Error
from netdyno.sip import dashboard, load_form
from netdyno.systems import SIP

from .test_send import reply, scripted


def test_a_request_is_sent_and_its_ladder_told() -> None:
    challenge = 'WWW-Authenticate: Digest realm="x", nonce="n"'
    with scripted(
        "udp", lambda one, n: [reply(one, "200 OK") if n > 1 else reply(one, "401 No", challenge)]
    ) as (uri, got):
        body = {
            "server": uri,
            "method": "MESSAGE",
            "body": "hello",
            "headers": ["Subject: test"],
            "password": "hush",
        }
        found = dashboard.exchange(body)
    assert found["status"] == 200 and [one["summary"] for one in found["messages"]][-1] == "200 OK (MESSAGE)"
    assert len(got) == 2 and got[1].get("Authorization") and got[0].get("Subject") == "test"
    assert found["drawing"].startswith("<svg") and "#message-3" in found["drawing"]
    # neither the password nor what is made of it; and no style, which the page's policy forbids
    assert (
        "hush" not in str(found) and "(hidden)" in str(found["messages"]) and "style=" not in found["drawing"]
    )


def test_a_preview_sends_nothing() -> None:
    with scripted("udp", lambda _one, _n: []) as (uri, got):
        shown = dashboard.preview({"server": uri, "method": "INVITE", "sdp": True})["message"]
    assert shown.startswith("INVITE sip:bob@127.0.0.1 SIP/2.0\n") and "a=inactive" in shown and not got


def test_silence_is_told() -> None:
    with scripted("udp", lambda _one, _n: []) as (uri, _):
        found = dashboard.exchange({"server": uri, "timeout": "200ms"})
    assert found["status"] is None and len(found["messages"]) == 1


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "ND-104-22"),
        ({"server": "example.net"}, "ND-104-22"),
        ({"server": "sip:x", "cacert": "/etc/passwd"}, "ND-104-10"),
        ({"server": "sip:x", "source": "127.0.0.1"}, "ND-104-10"),
        ({"server": "sip:x", "headers": "Subject: a"}, "ND-104-10"),
        ({"server": "sip:x", "headers": ["X: a\r\nEvil: b"]}, "ND-104-22"),
        ({"server": "sip:x", "body": {"a": 1}}, "ND-104-10"),
        ({"server": "sip:x", "body": "a", "sdp": True}, "ND-104-07"),
        ({"server": "sip:x", "raw": "hello"}, "ND-104-04"),
        ({"server": "sip:x", "expires": "soon"}, "ND-104-04"),
        ({"server": "sip:x", "timeout": "1h"}, "ND-104-05"),
        ({"server": "sip:x", "method": "A B"}, "ND-104-04"),
    ],
)
def test_what_cannot_be_sent_is_refused(body: dict[str, Any], code: str) -> None:
    with pytest.raises(Error) as caught:
        dashboard.exchange(body)
    assert caught.value.code == code, caught.value


def test_a_body_that_names_a_file_is_its_own_text() -> None:
    shown = dashboard.preview({"server": "sip:127.0.0.1", "method": "MESSAGE", "body": "@/etc/passwd"})
    assert shown["message"].endswith("@/etc/passwd") and set(SIP.answers) == {"preview", "send"}


def test_a_form_becomes_the_profile_of_its_verb() -> None:
    form = {"server": "sip:bob@192.0.2.1", "rate": "5", "domain": "example.net", "password": "env:WORD"}
    made = load_form.document({**form, "kind": "call", "media": True, "hold": "2s"})
    (callers,) = made["groups"]
    model = callers["model"]["sip"]
    assert (model["callee"], model["media"], model["password"]) == ("bob", {}, {"env": "WORD"})
    assert callers["load"]["open"]["rate"] == "5/s"
    (phones,) = load_form.document({**form, "kind": "register"})["groups"]
    assert phones["model"]["sip"]["user"] == "bob"
    for kind in ("redirect", "options"):
        assert load_form.document({**form, "kind": kind})["name"] == f"sip-{kind}"
    assert dashboard.capture(made) is not None
    assert dashboard.capture(load_form.document({"server": "sips:192.0.2.1"})) is None, "TLS cannot be read"


@pytest.mark.parametrize(
    ("form", "code"),
    [
        ({}, "ND-104-22"),
        ({"server": "sip:x", "kind": "none"}, "ND-104-22"),
        ({"server": "sip:x", "cacert": "/etc/passwd"}, "ND-104-10"),
        ({"server": "sip:x", "rate": "0"}, "ND-104-05"),
        ({"server": "sip:x", "rate": {"a": 1}}, "ND-104-10"),
        ({"server": "sip:x", "users": "-1"}, "ND-104-04"),
        ({"server": "sip:x", "media": True}, "ND-104-03"),
    ],
)
def test_a_wrong_form_is_refused(form: dict[str, Any], code: str) -> None:
    with pytest.raises(Error) as caught:
        load_form.document(form)
    assert caught.value.code == code
