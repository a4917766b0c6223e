"""What a run is about - target, load, duration, failures - wherever runs are listed or compared."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from netdyno.cli import app, compare, console
from netdyno.core.result import Estimate, GroupSummary, Leg, Repetition, Result, Summary
from netdyno.core.wire import Counts, Distribution, PhaseLengths
from netdyno.export import markdown
from netdyno.report import runs as page
from netdyno.stats import runs
from netdyno.stats.subject import TARGETS, Subject, named, of_profiles, subject
from netdyno.store import Store

from .command import result as stored

PROFILE = {"groups": [{"name": "web", "target": "http://a", "model": {"http": {"interval": "100ms"}}}]}


def made(run: str, target: str, delivered: int = 200, refused: int = 0, **changes: Any) -> Result:
    """A run of two seconds at 100/s."""
    counts = Counts(
        messages_intended=200, messages_sent=delivered + refused, messages_delivered=delivered,
        failures={"refused": refused} if refused else {},
    )  # fmt: skip
    group = {"name": "web", "protocol": "http", "target": target, "devices": 10}
    delays = {"response": Distribution(count=delivered, p50=1e6, p99=7e6)} if delivered else {}
    rates = {"messages_intended": 100.0, "messages_sent": 100.0, "messages_delivered": delivered / 2}
    repetition = Repetition.model_validate(
        {
            "run": run, "profile": PROFILE, "phases": PhaseLengths(measure=2.04),
            "groups": [group | {"measured": counts, "delays": delays, "rates": rates}],
        }
    )  # fmt: skip
    summary = GroupSummary(
        **group, measured=counts, delays=delays, rates={k: Estimate(n=1, mean=v) for k, v in rates.items()}
    )
    leg = Leg(name="sockets", repetitions=[repetition], summary=Summary(n=1, groups=[summary]))
    plain = {"id": run, "name": "http", "started": "2026-01-01T00:00:00Z", "valid": True, "verdict": "pass"}
    return Result.model_validate(plain | {"legs": [leg]} | changes)


def test_a_run_is_about_its_target_load_and_duration() -> None:
    found = subject(made("r1", "http://a"))
    assert found == Subject("http://a", 100.0, 10, 2.0, 7e6, 0, 200)
    assert (found.load, found.time, found.silent) == ("100/s", "2 s", False)
    free = made("r1", "http://a")
    free.legs[0].repetitions[0].profile = {}
    assert subject(free).load == "10 devices", "a load without a schedule intends no rate"
    assert subject(made("r1", "http://a", 0, 10)).silent
    # connections that begin while it is measured are not the load of a closed loop; of an open one they are
    for load, rate in (({"closed": {"flows": 1}}, 100.0), ({"open": {"rate": "5/s"}}, 5.0)):
        paced = made("r1", "http://a")
        paced.legs[0].summary.groups[0].rates["flows_intended"] = Estimate(n=1, mean=5.0)
        paced.legs[0].repetitions[0].profile = {"groups": [PROFILE["groups"][0] | {"load": load}]}
        assert subject(paced).rate == rate
    assert named(f"http://{n}" for n in range(TARGETS + 2)).endswith(" +2")
    assert of_profiles([{"groups": [{"target": "http://me:secret@a/"}]}]).target == "http://***@a/"


def test_the_list_of_runs_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        result = made("r1", "http://a")
        store.begin(result, tmp_path, Subject(target="http://planned"))
        assert store.rows()[0].subject == Subject(target="http://planned")
        store.finish(result)
        assert store.rows()[0].subject == subject(result)


def told(a: Result, b: Result, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str, page.Runs]:
    """The comparison in terminal, Markdown and page."""
    found = runs.compare(a, b)
    text = io.StringIO()
    monkeypatch.setattr(console, "out", lambda: Console(file=text, width=200))
    compare._show(found)
    legs = [(x, y, list(found.legs[x.name])) for x, y in found.paired]
    return text.getvalue(), markdown.comparison(found), page.build(a, b, legs, [], [], 0.05)


def test_two_servers_are_not_compared_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    text, summary, shown = told(made("r1", "http://a"), made("r2", "http://b"), monkeypatch)
    assert "the targets of A and B differ" in text
    assert [line.split()[3:6] for line in text.splitlines() if " http " in line] == [
        ["http://a", "100/s", "2"],
        ["http://b", "100/s", "2"],
    ]
    assert "The targets of A, the baseline, and B differ." in summary
    assert "| B | http | http&#58;//b | 100/s | 2 s | 0 |" in summary
    assert [one.text() for one in shown.notices] == [
        "The targets differ: A loads http://a, B loads http://b."
    ]
    assert [text for name, text in shown.facts if name.id == "Target"] == ["http://a", "http://b"]
    text, summary, shown = told(made("r1", "http://a"), made("r2", "http://a"), monkeypatch)
    assert "differ" not in text and "targets" not in summary and shown.notices == []


def test_a_refused_run_is_no_run_without_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    good, refused = made("r1", "http://a"), made("r2", "http://a", 0, 10)
    found = runs.compare(good, refused)
    assert found.worse and found.silent == ["B"] and found.document()["silent"] == ["B"]
    text, summary, shown = told(good, refused, monkeypatch)
    assert "B delivered nothing: all of it failed (10 errors)" in text
    assert ": worse than the baseline" in summary and "B delivered nothing" in summary
    assert (shown.state, shown.verdict.id) == ("fail", "Worse")
    assert shown.lead.text() == "B delivered nothing: all of it failed."
    assert "B: 10 errors." in [one.text() for one in shown.notices]
    # of a baseline that was refused nothing can be said
    assert not runs.compare(refused, good).worse
    assert told(refused, good, monkeypatch)[2].verdict.id == "Not comparable"


def test_a_run_is_called_as_it_is_asked(
    profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.call(["run", str(profile), "-q", "--name", "before-upgrade"]) == 0
    (found, _) = stored(tmp_path)
    assert found.name == "before-upgrade" and "-before-upgrade-" in found.id
    assert app.call(["run", str(profile), "-q", "--name", "before upgrade"]) == 104
    assert "'before upgrade' is not a name\n  at  --name" in capsys.readouterr().err
