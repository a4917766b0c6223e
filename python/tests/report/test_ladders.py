"""Ladders in the report of a traced run, in a real Chromium: an arrow leads to its message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from netdyno.errors import Error
from netdyno.report.render import render_folder
from netdyno.sip.ladder import trace
from netdyno.sip.ladder.capture import Message
from tests.report.conftest import Browser
from tests.report.test_browser import language

CALLER, CALLEE = "192.0.2.1:5060", "192.0.2.2:5060"
CALL = (("INVITE sip:b SIP/2.0", 1), ("SIP/2.0 486 Busy Here", 0), ("ACK sip:b SIP/2.0", 1))


def traced(folder: Path, result: dict[str, Any], most: int) -> str:
    """The page of a run of two calls, of which the second failed."""
    (folder / "result.json").write_text(json.dumps(result))
    kept = []
    for name, lines in (("fine", [("OPTIONS sip:b SIP/2.0", 1), ("SIP/2.0 200 OK", 0)]), ("busy", CALL)):
        for line, forth in lines:
            ends = (CALLER, CALLEE) if forth else (CALLEE, CALLER)
            method = "OPTIONS" if name == "fine" else "INVITE" if not line.startswith("ACK") else "ACK"
            text = f"{line}\r\nCall-ID: {name}@netdyno\r\nCSeq: 1 {method}\r\nCookie: word\r\nX: {'x' * 300}\r\n\r\n"
            kept.append(Message(1000.0 + len(kept) / 8, *ends, "udp", text.encode()))
    with (folder / "capture.pcapng").open("wb") as out:
        trace._write(out, kept)
    assert trace.reduce(folder, most)
    return render_folder(folder)


@pytest.mark.browser
def test_an_arrow_leads_to_its_message(browser: Browser, tmp_path: Path, result: dict[str, Any]) -> None:
    drawn = traced(tmp_path, result, 2)
    assert "word" not in drawn.split('<section id="ladder"')[1].split("<section")[0]
    (tmp_path / "report.html").write_text(drawn, encoding="utf-8")
    browser.open((tmp_path / "report.html").as_uri() + "?lang=en")
    shown = "document.querySelector('#call-{0}-{1}').checkVisibility()"
    # the failed call comes first and is unfolded, its messages are not
    assert browser.js(
        "return document.querySelector('#call-0 > summary').innerText.includes('busy@netdyno: INVITE: 486')"
    )
    assert browser.js(
        f"return [{shown.format(0, 1)}, document.querySelector('#call-1 svg').checkVisibility()]"
    ) == [
        False,
        False,
    ]
    browser.js(
        "document.querySelector('a[href=\"#call-0-1\"]').scrollIntoView({block: 'center', behavior: 'instant'})"
    )
    browser.driver.find_element("css selector", 'a[href="#call-0-1"]').click()
    browser.wait(shown.format(0, 1))
    assert "486 Busy Here" in browser.js("return document.querySelector('#call-0-1').innerText")
    wide = browser.js("return document.querySelector('#call-0 svg').getBoundingClientRect().width")
    assert 0 < wide <= browser.js("return document.querySelector('main').clientWidth")
    language(browser, "ko")
    assert browser.js("return document.querySelector('#ladder-title').innerText") == "SIP 메시지"
    language(browser, "en")
    assert browser.complaints() == []


def test_what_there_is_no_room_for_is_counted(
    tmp_path: Path, result: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "ROOM", 1300)
    drawn = traced(tmp_path, result, 2)
    assert drawn.count('class="ladder"') == 1 and "1 more calls: netdyno sip ladder" in drawn


def test_a_file_that_is_no_ladder_is_named(tmp_path: Path, result: dict[str, Any]) -> None:
    traced(tmp_path, result, 1)
    (tmp_path / trace.LADDERS).write_text('{"calls": 1}')
    with pytest.raises(Error, match=r"not what --trace wrote"):
        render_folder(tmp_path)
