"""`netdyno sip ladder --follow` and `--ladder` of loads: the messages of a run that is under way."""

from __future__ import annotations

import re
import signal

import pytest
from lab import NETDYNOD, Lab, root, until

from netdyno.sip.server import SipServer


@root
@pytest.mark.drawn
def test_messages_of_a_run_appear_while_it_is_under_way(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETDYNO_DAEMON", NETDYNOD)
    with SipServer({"listen": "127.0.0.1:0", "domain": "example.net", "role": "proxy"}) as server:
        words = (
            "--domain",
            "example.net",
            "--rate",
            "10/s",
            "--duration",
            "60s",
            "--warmup",
            "0s",
            "--hold",
            "300ms",
        )
        run = lab.start("sip", "call", f"sip:{server.address}", *words, "--capture", "--quiet")
        lab.sampled()
        shown = lab.base / "shown"
        with shown.open("w") as out:
            ladder = lab.start("sip", "ladder", "latest", "--follow", "--limit", "1", stdout=out)
            # of caller and of callee
            until(lambda: shown.read_text().count("200 OK (BYE)") > 1, 60, "no call is drawn")
            assert run.poll() is None, "the run is over"
            run.send_signal(signal.SIGINT)
            lab.wait(run)
            assert lab.wait(ladder, 30).code == 0
    live = shown.read_text()
    (call, *_) = re.findall(r"^\S+@netdyno$(?=(?:\n.*){2}INVITE)", live, re.MULTILINE)
    whole = lab.run("sip", "ladder", "latest", "--call-id", call).out
    assert max(row.count("127.0.0.1:") for row in live.splitlines()) >= 3, "caller, proxy and callee"
    assert len(messages_of(call, live)) > 6, live
    # as the finished capture has them: of those that this lost, neither knows
    assert messages_of(call, live) == messages_of(call, whole), f"{live}\n{whole}"
    for step in ("INVITE sip:", "180 ", "200 OK (INVITE)", "ACK sip:", "BYE sip:", "200 OK (BYE)"):
        assert step in live, live


def messages_of(call: str, ladders: str) -> list[tuple[str, str]]:
    """Time and words of each message of a call, wherever its columns are."""
    found, within = [], False
    for row in ladders.splitlines():
        if "@netdyno" in row:
            within = row.startswith(call)
        elif within and "|" in row:
            at, _, drawn = row.partition(" ms ")
            found.append((at.strip(), re.sub(r"[->|\s]+", " ", drawn).strip()))
    return found


@root
@pytest.mark.drawn
@pytest.mark.parametrize("capture", [False, True])
def test_a_load_draws_its_first_call_while_it_is_under_way(
    capture: bool, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NETDYNO_DAEMON", NETDYNOD)
    shown = lab.base / "shown"
    with (
        SipServer({"listen": "127.0.0.1:0", "domain": "example.net", "role": "proxy"}) as server,
        shown.open("w") as out,
    ):
        words = (
            "--domain",
            "example.net",
            "--rate",
            "10/s",
            "--duration",
            "60s",
            "--warmup",
            "0s",
            "--ladder",
        )
        more = ("--capture",) if capture else ()
        run = lab.start("sip", "call", f"sip:{server.address}", *words, *more, stderr=out)
        until(lambda: "200 OK (BYE)" in shown.read_text(), 90, "no call is drawn")
        assert run.poll() is None, "the run is over"
        run.send_signal(signal.SIGINT)
        lab.wait(run, 60)
    rows = shown.read_text().splitlines()
    calls = {row for row in rows if row.endswith("@netdyno")}
    assert len(calls) == 2, "a registration and a call"
    assert any("REGISTER sip:" in row for row in rows) and any("INVITE sip:" in row for row in rows)
    # in the place of live figures
    assert not any("offered" in row for row in rows), rows
    (report,) = lab.runs.glob("*/report.html")
    assert (b'class="ladder"' in report.read_bytes()) is not capture
