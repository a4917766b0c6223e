"""`netdyno demo sip`, as a newcomer runs it: registrations, calls with audio, ladder, MOS and verdict."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from inconclusive import Verdict
from lab import Lab, root

USERS, CALLS = 1000, 200


@root
@pytest.mark.alone
@pytest.mark.limit(180)
def test_users_register_and_talk(lab: Lab, verdict: Verdict) -> None:
    done = lab.run("demo", "sip", timeout=170)
    result = done.result
    # what was lost or refused is a fault; how long things took is up to the machine
    missed = [one.metric for one in result.thresholds if not one.passed]
    assert all(".delay." in one for one in missed), done.text
    assert done.code == (90 if not result.valid else 99 if missed else 0), done.text
    said = "pass" if not missed else "fail"
    assert re.search(rf"^verdict {said}, measurement (valid|INVALID)$", done.out, re.MULTILINE), done.text

    registrations, calls = (leg.repetitions[0] for leg in result.legs)
    [phones] = registrations.groups
    assert phones.devices == USERS
    assert phones.total.own["registrations"] == phones.total.own["registrations_accepted"]
    callers = next(one for one in calls.groups if one.name == "callers")
    count = callers.total.own
    assert count["session_requests"] == count["sessions_completed"] == count["audio_calls"]
    assert count["one_way_audio_calls"] == 0 and callers.values["mos"].count > 0
    mos = re.search(r"callers: heard .*; mos p5 ([\d.]+),", done.out)
    assert mos and float(mos[1]) >= 4.0, done.out

    # a ladder of a call in the terminal, with the proxy in the middle
    ladder = done.out[done.out.index("\ncall ") :].splitlines()
    assert ladder[1].endswith("@netdyno: no request failed"), ladder
    assert "10.93.0.2:5060" in ladder[2]
    steps = ["INVITE sip:", "180 Ringing", "200 OK (INVITE)", "ACK sip:", "BYE sip:", "200 OK (BYE)"]
    assert [sum(step in row for row in ladder) for step in steps] == [2] * 6, ladder
    # the report has it, and those of others
    assert done.folder
    kept = json.loads((done.folder / "ladder.json").read_text())["calls"]
    assert ladder[1].removeprefix("call ").partition(":")[0] in {one["call_id"] for one in kept}
    paths = dict(re.findall(r"^(result|report) +(\S+)$", done.out, re.MULTILINE))
    assert kept[-1]["call_id"] in Path(paths["report"]).read_text()
    lab.clean()
    # as many as are due, where the machine let them begin
    if count["session_requests"] < CALLS or phones.total.own["registrations"] < USERS:
        verdict.valid(result.reasons)
    assert count["session_requests"] == CALLS and phones.total.own["registrations"] == USERS
