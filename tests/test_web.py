"""The dashboard in a real Chromium: from the log-in to a finished run by keyboard alone, and names that are no markup."""

from __future__ import annotations

import http.server
import json
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from browser import Page, ask, dashboard, doors, fill
from lab import PATIENT, Lab, root, until
from test_web_axe import findings

from netdyno.core.result import Result
from netdyno.store import Store

TOP = Path(__file__).resolve().parents[1]
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def server() -> Iterator[str]:
    class Quiet(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as one:
        threading.Thread(target=one.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{one.server_address[1]}/"
        one.shutdown()


@pytest.mark.browser
@pytest.mark.limit(240)
def test_from_the_log_in_to_a_finished_run_by_keyboard_alone(lab: Lab, page: Page, server: str) -> None:
    address, token = dashboard(lab)
    page.driver.get(address)
    page.wait("document.documentElement.hasAttribute('data-ready')")
    assert page.js("document.activeElement.id") == "token"
    page.press(token, "\ue007")
    page.wait("!!document.querySelector('a[href=\"#/new\"]')")
    page.tab_to('a[href="#/new"]')
    page.press("\ue007")
    page.wait("!!document.querySelector('#url')")
    page.tab_to("#url")
    page.press(server)
    page.tab_to("#duration")
    page.press("4s")
    page.tab_to("#option-rate")
    page.press("20", "\ue007")
    page.wait("location.hash.startsWith('#/run/')", "the run does not start")
    page.wait("!!document.querySelector('#live .chart')", "there is no chart while it runs")
    page.wait("!!document.querySelector('.verdict h2')", "the run does not end")
    page.wait("document.querySelectorAll('#charts .chart').length >= 5")
    run = page.js("location.hash").removeprefix("#/run/")
    assert json.loads((lab.runs / run / "result.json").read_text())["id"] == run
    # what the browser was refused is only that nobody was logged in yet
    assert [one for one in page.complaints() if "/api/about" not in one] == []


@pytest.mark.browser
@pytest.mark.limit(240)
def test_names_are_text_wherever_they_come_from(lab: Lab, page: Page, server: str) -> None:
    profile = {
        "name": "plain",
        "description": HOSTILE,
        "phases": {"warmup": "0s", "measure": "8s", "drain": "1s"},
        "groups": [{"name": "a", "target": server, "devices": 2, "model": {"http": {"interval": "100ms"}}}],
    }
    child = lab.start("run", lab.write("plain.json", profile), "--quiet")
    address, token = dashboard(lab)
    folder = lab.sampled()
    # names that a host, a driver or another version may give
    with (folder / "events.jsonl").open("a") as file:
        file.write(json.dumps({"event": "dut", "dut": HOSTILE, "cpu": 0.5}) + "\n")
        file.write(json.dumps({"event": "log", "line": HOSTILE}) + "\n")
    page.driver.get(f"{address}#token={token}")
    page.wait("!!document.querySelector('.run .of')")
    assert "token" not in page.js("location.href")
    page.js(f"void (location.hash = '#/run/{folder.name}')")
    page.wait(
        f"document.querySelector('main').innerText.includes({json.dumps(HOSTILE)})", "the name is not shown"
    )
    page.js("void document.querySelectorAll('details').forEach((one) => (one.open = true))")
    assert page.js("document.querySelectorAll('main img').length") == 0
    lab.wait(child)
    page.wait("!!document.querySelector('.verdict h2')", "the end is not noticed")
    assert page.complaints() == []


@pytest.mark.limit(240)
def test_a_run_of_the_command_line_gets_another_rate_and_is_stopped(lab: Lab, server: str) -> None:
    child = lab.start("run", server, "--rate", "20/s", "--duration", "120s", "--quiet")
    address, token = dashboard(lab)
    run = lab.sampled(points=2).name
    (changed,) = ask(f"{address}api/runs/{run}/rate", token, {"group": "http", "rate": "60/s"})["rates"]
    assert (changed["of"], changed["before"], changed["rate"]) == ("group", 20, 60)
    lab.sampled(points=int(changed["t"]) + 2)
    ask(f"{address}api/runs/{run}/stop", token, {})
    done = lab.wait(child)
    assert done.code == 105, done.text
    found = json.loads((lab.runs / run / "result.json").read_text())
    (trial,) = found["legs"][0]["repetitions"]
    assert trial["rates"] == [changed]
    after = next(point for point in trial["series"] if point["t"] > changed["t"] + 0.5)
    assert after["groups"]["http"]["counts"]["messages_intended"] == 60
    assert found["interrupted"]
    assert found["legs"][0]["repetitions"][0]["groups"][0]["total"]["messages_sent"] > 0


@pytest.mark.browser
@pytest.mark.limit(240)
def test_a_run_is_paused_resumed_and_stopped_on_its_page(lab: Lab, page: Page, server: str) -> None:
    child = lab.start("run", server, "--rate", "20/s", "--duration", "120s", "--quiet")
    address, token = dashboard(lab)
    folder = lab.sampled(points=2)
    page.driver.get(f"{address}#token={token}")
    page.wait("!!document.querySelector('.run .of')")
    page.js(f"void (location.hash = '#/run/{folder.name}')")
    page.wait("document.querySelector('.state')?.innerText === 'running'", "the run is not shown")

    def pressed(what: str) -> str:
        button = (
            f"[...document.querySelectorAll('.actions button')].find((one) => one.innerText === '{what}')"
        )
        page.wait(f"!!{button} && !{button}.disabled", f"there is no {what}")
        page.js(f"void {button}.focus()")
        page.press("\ue007")
        return button

    pressed("Pause")
    page.wait("document.querySelector('.state').innerText === 'paused'", "it is not paused")
    stands = (folder / "samples.jsonl").read_bytes()
    resume = "[...document.querySelectorAll('.actions button')].some((one) => one.innerText === 'Resume')"
    page.wait(resume, "a run that is paused cannot be resumed")
    time.sleep(2)
    # its clock stands still: at most the point that ended with the pause came since
    assert (folder / "samples.jsonl").read_bytes().count(b"\n") <= stands.count(b"\n") + 1
    pressed("Resume")
    page.wait("document.querySelector('.state').innerText === 'running'", "it is not resumed")
    lab.sampled(points=stands.count(b"\n") + 3)
    pressed("Stop")
    done = lab.wait(child)
    assert done.code == 105, done.text
    page.wait("!!document.querySelector('.verdict h2')", "the end is not noticed")
    found = json.loads((folder / "result.json").read_text())
    (trial,) = found["legs"][0]["repetitions"]
    (pause,) = trial["paused"]
    assert pause["seconds"] > 1.5
    # a busy machine may make more of it than that it was stopped
    only = {reason["code"] for reason in found["reasons"]} == {"ND-90-05"}
    shown = page.js("document.querySelector('.verdict h2').innerText")
    assert shown == ("Interrupted" if only else "Not valid")
    lead = page.js("document.querySelector('.verdict .lead').innerText")
    assert ("of 2 min. The figures are of that time." in lead.replace("\u202f", " ")) == only
    page.wait("document.querySelectorAll('#charts .chart').length >= 3", "there are no charts")
    drawn = "document.querySelector('#charts [data-chart=load] .plot').getAttribute('aria-label')"
    page.wait(f"({drawn} ?? '').includes('paused for')", "the pause has no mark")
    assert page.complaints() == []


@pytest.mark.browser
@pytest.mark.limit(240)
def test_a_run_is_named_refused_at_its_fields_found_and_run_again(lab: Lab, page: Page, server: str) -> None:
    address, token = dashboard(lab)
    page.driver.get(f"{address}#token={token}")
    page.wait("!!document.querySelector('a[href=\"#/new\"]')")
    page.js("void (location.hash = '#/new')")
    page.wait("!!document.querySelector('#url')")
    start = "document.querySelector('form.form .press.main')"

    def refused(field: str, text: str, right: str) -> None:
        fill(page, f"#{field}", text)
        page.js(f"void {start}.click()")
        page.wait(
            f"document.querySelector('#{field}').getAttribute('aria-invalid') === 'true'", f"{field}: {text}"
        )
        page.wait(f"document.activeElement.id === '{field}'", f"{field} has no focus")
        assert "ND-104-" in page.js(f"document.querySelector('#{field}-wrong').innerText")
        fill(page, f"#{field}", right)

    fill(page, "#name", "before-upgrade")
    fill(page, "#url", server)
    refused("duration", "soon", "1")
    refused("option-rate", "fast", "20")
    refused("url", server.removeprefix("http://"), server)
    page.js(f"void {start}.click()")
    page.wait("location.hash.startsWith('#/run/')", "a bare number is refused")
    page.wait("!!document.querySelector('.verdict h2')", "the run does not end")
    run = page.js("location.hash").removeprefix("#/run/")
    assert "before-upgrade" in run
    assert page.js("document.querySelector('h1').innerText") == "before-upgrade"
    # as it was, in the builder
    page.js(
        "void [...document.querySelectorAll('a.press')].find((one) => one.innerText === 'Run again').click()"
    )
    page.wait("(document.querySelector('#yaml')?.value ?? '').includes('groups:')", "there is no profile")
    again = yaml_of(page)
    assert again["phases"]["measure"] == "1s" and again["groups"][0]["target"] == server.rstrip("/")
    page.wait("!document.querySelector('#start').disabled", "it cannot be started")


@pytest.mark.browser
@pytest.mark.limit(240)
def test_runs_are_found_by_target_and_verdict_page_by_page(lab: Lab, page: Page, server: str) -> None:
    done = lab.run("run", server, "--rate", "20/s", "--duration", "1s", "--warmup", "0s", "--quiet")
    assert done.result.legs, done.text
    with Store(lab.state / "runs.sqlite") as store:
        for n in range(60):
            one = done.result.model_copy(
                deep=True,
                update={"id": f"20260101-120000-http-{n:06}", "started": f"2026-01-01T12:00:{n:02}Z"},
            )
            one.verdict, one.valid = ("fail" if n < 3 else "pass"), True
            for leg in one.legs:
                leg.summary.groups[0].target = f"http://lab-{n}/"
            store.put(one, lab.runs / one.id)
    address, token = dashboard(lab)
    page.driver.get(f"{address}#token={token}")
    rows = "document.querySelectorAll('.run').length"
    page.wait(f"{rows} === 50", "a page has 50 runs")
    assert "All runs of this user" in page.text()
    about = page.js("document.querySelector('.run .about').innerText").replace("\u202f", " ")
    assert server.rstrip("/") in about and "/s · 1.0 s · p99" in about, about
    page.js(
        "void [...document.querySelectorAll('nav.bar button')].find((one) => one.innerText === 'Older').click()"
    )
    page.wait(f"{rows} === 11", "the other runs are on no page")
    for text, count in (("lab-7", 1), ("FAIL", 3), ("fail lab-2", 1), ("nowhere", 0)):
        fill(page, "input[type=search]", text)
        page.wait(f"{rows} === {count}", f"{text} finds other runs")
    # a third tick is not taken in place of the first
    fill(page, "input[type=search]", "fail")
    page.wait(f"{rows} === 3")
    for n in (0, 1):
        page.js(f"void document.querySelectorAll('.run input')[{n}].click()")
    page.wait("document.querySelectorAll('.run input')[2].disabled", "a third run can be chosen")
    assert page.complaints() == []


@pytest.mark.browser
@pytest.mark.limit(240)
def test_a_run_that_is_being_set_up_has_nothing_to_steer_and_a_viewer_no_form(lab: Lab, page: Page) -> None:
    address, token, viewer = doors(lab)
    result = Result(id="20260101-120000-chain-000000", name="chain", started="2026-01-01T12:00:00Z")
    folder = lab.runs / result.id
    folder.mkdir(parents=True)
    plan = {
        "id": result.id,
        "title": "chain",
        "leg": "ovs",
        "trial": 1,
        "trials": 4,
        "phases": {"measure": 5},
    }
    (folder / "events.jsonl").write_text(json.dumps({"event": "start", "plan": plan}) + "\n")
    with Store(lab.state / "runs.sqlite") as store:
        store.begin(result, folder)
        page.driver.get(f"{address}#token={token}")
        page.wait("!!document.querySelector('.run .of')")
        page.js(f"void (location.hash = '#/run/{result.id}')")
        page.wait("document.querySelector('.state')?.innerText === 'setting up'", "the run is not shown")
        buttons = page.js("[...document.querySelectorAll('main button')].map((one) => one.innerText)")
        assert "Stop" in buttons and not {"Pause", "Change the rate"} & set(buttons)
        assert page.js("document.querySelector('.valid')") is None, "nothing was measured yet"
        store.finish(result)
    page.js(
        "void [...document.querySelectorAll('nav button')].find((one) => one.innerText === 'Log out').click()"
    )
    page.wait("!!document.querySelector('#token')")
    page.driver.get(f"{address}#token={viewer}")
    page.wait("!!document.querySelector('.run .of')")
    page.js("void (location.hash = '#/new')")
    page.wait(
        "document.querySelector('main h1')?.innerText === 'This page is for operators'", "it is not there"
    )


@pytest.mark.browser
@pytest.mark.limit(240)
def test_thresholds_are_judged_while_a_run_is_under_way(lab: Lab, page: Page, server: str) -> None:
    child = lab.start(
        "run", server, "--rate", "20/s", "--duration", "40s", "--warmup", "0s", "--quiet",
        "--threshold", "delay.response.p99 <= 1us",
    )  # fmt: skip
    address, token = dashboard(lab)
    folder = lab.sampled()
    page.driver.get(f"{address}#token={token}")
    page.wait("!!document.querySelector('.run .of')")
    page.js(f"void (location.hash = '#/run/{folder.name}')")
    rows = "[...document.querySelectorAll('#thresholds tbody tr')].map((row) => [...row.cells].map((cell) => cell.innerText))"
    # errors and loss, which is not known while messages are in flight, and the delay
    page.wait(f"({rows}).length === 3 && ({rows})[0][0] === 'yes' && ({rows})[2][0] === 'no'", "not judged")
    assert page.js("document.querySelector('#thresholds caption').innerText") == "Thresholds so far"
    errors, _, delay = page.js(rows)
    assert "errors" in errors[1] and delay[3].startswith("≈")
    page.js("document.querySelector('[data-language=ko]').click()")
    page.wait(f"({rows})[0][0] === '예' && ({rows})[2][0] === '아니요'", "they are not translated")
    page.js("document.querySelector('[data-language=en]').click()")
    stop = "[...document.querySelectorAll('.actions button')].find((one) => one.innerText === 'Stop')"
    page.js(f"void {stop}.click()")
    lab.wait(child)
    page.wait("!!document.querySelector('.verdict h2')", "the end is not noticed")
    # in the same words
    found = {row[1]: row[0] for row in page.js(rows)}
    assert (found[errors[1]], found[delay[1]]) == ("yes", "no")
    assert page.complaints() == []


@pytest.mark.browser
@pytest.mark.limit(240)
def test_a_metric_is_followed_over_the_runs_of_a_target(lab: Lab, page: Page, server: str) -> None:
    words = ["--rate", "20/s", "--duration", "1s", "--warmup", "0s", "--quiet"]
    for name in ("before", "after", "after"):
        done = lab.run("run", server, "--name", name, *words)
        assert done.result.legs, done.text
    address, token = dashboard(lab)
    page.driver.get(f"{address}#token={token}")
    page.wait("!!document.querySelector('.run .of')")
    page.js("void document.querySelector('.run .of').click()")
    page.wait("!!document.querySelector('a[href^=\"#/trend/\"]')", "no link leads to the trend")
    page.js("void document.querySelector('a[href^=\"#/trend/\"]').click()")
    rows = "[...document.querySelectorAll('#trend tbody tr')].map((row) => row.cells[1].innerText)"
    page.wait(f"({rows}).join() === 'before,after,after'", "the runs are not listed")
    page.wait("!!document.querySelector('#charts canvas')", "there is no line")
    value = "document.querySelector('#trend tbody td:nth-of-type(4)').innerText"
    assert page.js(value).endswith("s")
    page.js(
        "(() => { const m = document.querySelector('#metric'); m.value = 'http.messages_delivered.rate'; m.dispatchEvent(new Event('change')); })()"
    )
    page.wait(f"{value}.endsWith('/s')", "another metric is not shown")
    page.js("void document.querySelector('#named').click()")
    page.wait(f"({rows}).join() === 'after,after'", "other names are not left out")
    assert findings(page) == []
    page.js("document.querySelector('[data-language=ko]').click()")
    page.wait("document.querySelector('h1').innerText === '추이'")
    assert page.complaints() == []


@pytest.mark.limit(120)
def test_a_dashboard_that_is_ended_by_hand_says_so(lab: Lab) -> None:
    child = lab.start("web", "--listen", "127.0.0.1:0")
    assert child.stdout is not None
    child.stdout.readline()
    # the address is told before the server takes signals
    address = child.stdout.readline().split()[1].partition("#")[0]
    until(lambda: answers(address), 30, "the dashboard does not answer")
    child.send_signal(signal.SIGINT)
    done = lab.wait(child)
    assert done.code == 0, done.text
    assert "runs under way go on" in done.err and "ND-105" not in done.err


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.mark.browser
@pytest.mark.limit(300)
def test_a_search_is_watched_as_it_converges(lab: Lab, page: Page, server: str) -> None:
    words = ["--rate", "400/s", "--devices", "4", "--duration", "1s", "--resolution", "20%", "--quiet"]
    child = lab.start("bench", "rate", server, *words)
    address, token = dashboard(lab)
    folder = lab.sampled()
    page.driver.get(f"{address}#token={token}")
    page.wait("!!document.querySelector('.run .of')")
    page.js(f"void (location.hash = '#/run/{folder.name}')")
    rows = "document.querySelectorAll('#so-far tbody tr').length"
    page.wait(f"{rows} >= 1", "no trial that is over is shown")
    before = int(page.js(rows))
    # more trials come while it is looked at, or its end
    page.wait(f"{rows} > {before} || !!document.querySelector('.verdict h2')", "the page stands still")
    lab.wait(child)
    page.wait("!!document.querySelector('.verdict h2')", "the end is not noticed")
    found = json.loads((folder / "result.json").read_text())
    assert found["search"]["parts"]
    assert page.complaints() == []


PRESETS = ("iot-mixed", "stream-64b", "latency-probe")


def yaml_of(page: Page) -> Any:
    return yaml.safe_load(str(page.js("document.querySelector('#yaml').value")))


GOOD, BAD = "!!document.querySelector('.state.good')", "!!document.querySelector('.state.bad')"


@pytest.mark.browser
@pytest.mark.limit(240)
def test_a_profile_is_built_by_form_and_by_yaml_and_run(lab: Lab, page: Page, server: str) -> None:
    address, token = dashboard(lab)
    page.driver.get(f"{address}#token={token}")
    page.wait("!!document.querySelector('a[href=\"#/build\"]')")
    page.tab_to('a[href="#/build"]')
    page.press("\ue007")
    page.wait(GOOD, "the first profile is not valid")
    # by keyboard, at its place: what is wrong with a value, and what to do
    page.tab_to("[id='at:groups[0].devices']")
    page.js("document.activeElement.select()")
    page.press("7x")
    page.wait(BAD)
    at = "document.getElementById('at:groups[0].devices')"
    assert page.js(f"{at}.getAttribute('aria-invalid')") == "true"
    wrong = page.js(f"document.getElementById({at}.getAttribute('aria-describedby').split(' ')[1]).innerText")
    assert "whole number" in wrong and page.js("document.querySelector('#start').disabled")
    page.press("\ue003")
    page.wait(GOOD)
    assert yaml_of(page)["groups"][0]["devices"] == 7
    # a field that is cleared keeps its place and the focus
    fill(page, "[id='at:groups[0].model.http.interval']", "\ue003")
    page.wait("!document.querySelector('#yaml').value.includes('interval')")
    page.press("50ms")
    page.wait("document.querySelector('#yaml').value.includes('interval: 50ms')")
    # a part is added with its required keys, gets the focus, and is removed again
    page.js("document.querySelector('.builder form > details > summary').click()")
    page.wait("!!document.getElementById('at:phases')")
    page.js("document.getElementById('at:phases').focus()")
    page.press("\ue007")
    page.wait("document.activeElement.matches('fieldset[id=\"at:phases\"]')")
    page.js("document.querySelector('[id=\"at:phases\"] summary').click()")
    for name, text in (("measure", "1s"), ("warmup", "200ms"), ("drain", "1s")):
        page.wait(f"!!document.getElementById('at:phases.{name}')")
        fill(page, f"[id='at:phases.{name}']", text)
    page.wait("document.querySelector('#yaml').value.includes('drain: 1s')")
    page.js("document.querySelector('[id=\"at:thresholds\"] legend button').click()")
    page.wait("!document.querySelector('#yaml').value.includes('thresholds')")
    # the other way: the form follows the YAML, whose names are text
    document = yaml_of(page) | {"name": "built", "description": HOSTILE, "targets": {"server": server}}
    set_yaml = "(() => { const y = document.querySelector('#yaml'); y.value = arguments[0]; y.dispatchEvent(new Event('input')); })()"
    page.js(set_yaml, "name: [")
    page.wait("!!document.querySelector('.yaml .failure')", "YAML that cannot be read is not told")
    assert page.js("document.querySelector('#state').innerText") == "The YAML cannot be read."
    assert page.js("document.querySelector('#said').textContent") == "The YAML cannot be read."
    assert page.js("document.getElementById('at:name').value") == "my-profile"
    page.js(set_yaml, yaml.safe_dump(document))
    page.wait("document.getElementById('at:name')?.value === 'built'", "the form does not follow")
    page.wait(GOOD)
    assert page.js("document.getElementById('at:description').value") == HOSTILE
    page.tab_to("#start")
    page.press("\ue007")
    page.wait("location.hash.startsWith('#/run/')", "the run does not start")
    page.wait("!!document.querySelector('.verdict h2')", "the run does not end")
    run = page.js("location.hash").removeprefix("#/run/")
    result = json.loads((lab.runs / run / "result.json").read_text())
    assert result["name"] == "built" and result["legs"][0]["repetitions"][0]["groups"][0]["devices"] == 7
    assert [one for one in page.complaints() if "/api/about" not in one and "/api/convert" not in one] == []


@pytest.mark.browser
@pytest.mark.limit(240)
def test_presets_come_into_the_form_and_out_of_it_as_they_were(lab: Lab, page: Page) -> None:
    address, token = dashboard(lab)
    page.driver.get(f"{address}#token={token}")
    page.wait("!!document.querySelector('a[href=\"#/build\"]')")
    page.driver.get(f"{address}#/build")
    page.wait(GOOD)
    for preset in PRESETS:
        choose = "(() => { const b = document.querySelector('#begin'); b.value = arguments[0]; b.dispatchEvent(new Event('change')); })()"
        page.js(choose, preset)
        page.wait(f"document.getElementById('at:name').value === '{preset}'")
        page.wait("!!document.querySelector('.state.good,.state.bad')")
        assert yaml_of(page) == json.loads((TOP / "profiles" / f"{preset}.json").read_text())
    page.driver.set_window_size(390, 800)
    page.js("document.querySelector('[data-language=ko]').click()")
    page.wait("document.querySelector('h1').innerText === '프로파일 작성'")
    # every folded part open: nothing is wider than the window, each field has a name and its own id
    page.wait(
        "(() => { const all = [...document.querySelectorAll('.builder details:not([open])')];"
        " all.forEach((one) => (one.open = true)); return all.length === 0; })()"
    )
    assert page.js("document.documentElement.scrollWidth <= innerWidth")
    assert (
        page.js(
            "[...document.querySelectorAll('.builder input, .builder select, .builder textarea')]"
            ".filter((one) => !one.labels.length).map((one) => one.id)"
        )
        == []
    )
    ids = page.js("[...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(ids) == len(set(ids))
    assert [one for one in page.complaints() if "/api/about" not in one] == []


@root
@pytest.mark.browser
@pytest.mark.limit(240)
def test_an_experiment_is_built_started_and_watched(lab: Lab, page: Page) -> None:
    address, token = dashboard(lab)
    page.driver.get(f"{address}#token={token}")
    page.wait("!!document.querySelector('a[href=\"#/experiment\"]')")
    page.tab_to('a[href="#/experiment"]')
    page.press("\ue007")
    page.wait(GOOD, "the first experiment is not valid")
    # a level that cannot be is told where it is used; one more is added by keyboard
    level = "[id='at:factors.profile.groups.web.model.http.interval[1]']"
    fill(page, level, "soon")
    page.wait(BAD)
    where = "document.querySelector('.problems button').innerText"
    assert page.js(where) == "legs[0].profile.groups[0].model.http.interval"
    fill(page, level, "20ms")
    page.wait(GOOD)
    # the network is chosen, and the device under test goes along
    choose = "(() => { const b = document.querySelector('#topology'); b.value = arguments[0]; b.dispatchEvent(new Event('change')); })()"
    page.js(choose, "none")
    page.wait("!document.querySelector('#yaml').value.includes('topology:')")
    assert "host" not in yaml_of(page)["legs"][0]["duts"]["web"]
    page.js(choose, "impaired")
    page.wait("document.querySelector('#yaml').value.includes('topology:')")
    page.wait(
        "document.querySelector('#network-0')?.innerText.includes('delay 5ms')", "the network is not drawn"
    )
    # the options are those of the driver
    page.wait(GOOD)
    page.js("document.querySelectorAll('.builder details').forEach((one) => (one.open = true))")
    page.wait("!!document.getElementById('at:legs[0].duts.web.options')")
    document = yaml_of(page) | {"name": "built", "repeat": 1}
    leg = document["legs"][0]
    leg["profile"] |= {"phases": {"warmup": "0s", "measure": "1s", "drain": "1s"}, "validity": PATIENT}
    leg["duts"]["web"]["options"] = {"size": 7}
    set_yaml = "(() => { const y = document.querySelector('#yaml'); y.value = arguments[0]; y.dispatchEvent(new Event('input')); })()"
    page.js(set_yaml, yaml.safe_dump(document))
    page.wait("document.getElementById('at:name')?.value === 'built'", "the form does not follow")
    page.wait(GOOD)
    assert page.js("document.getElementById('at:legs[0].duts.web.options.size').value") == "7"
    page.js("document.querySelector('#begin').focus()")
    page.tab_to("#start")
    page.press("\ue007")
    page.wait("location.hash.startsWith('#/run/')", "the experiment does not start")
    link = "document.querySelector('#network [data-edge]')?.textContent.startsWith('→ ')"
    page.wait(link, "it is not told what passes the link")
    page.wait("!!document.querySelector('#so-far tbody tr')", "it is not told what the first trials come to")
    page.wait("!!document.querySelector('.verdict h2')", "the experiment does not end")
    run = page.js("location.hash").removeprefix("#/run/")
    result = json.loads((lab.runs / run / "result.json").read_text())
    assert [len(leg["repetitions"]) for leg in result["legs"]] == [1, 1] and result["verdict"] == "pass"
    there = result["legs"][0]["repetitions"][0]["links"][0]["a_to_b"]["packets_out"]
    page.wait(f"document.querySelector('#network [data-edge]').textContent.startsWith('→ {there:,} ')")
    assert '<svg class="diagram"' in (lab.runs / run / "report.html").read_text()
    assert [one for one in page.complaints() if "/api/about" not in one] == []


@pytest.mark.browser
@pytest.mark.limit(240)
def test_a_sip_request_is_composed_sent_and_its_ladder_read(lab: Lab, page: Page) -> None:
    server = lab.start("sip", "serve", "uas", "--listen", "127.0.0.1:0")
    assert server.stderr is not None
    at = server.stderr.readline().split()[2].rstrip(",")
    address, token = dashboard(lab)
    page.driver.get(f"{address}#token={token}")
    page.wait("!!document.querySelector('a[href=\"#/sip\"]')")
    page.tab_to('a[href="#/sip"]')
    page.press("\ue007")
    page.wait("!!document.querySelector('#sip-server')")
    page.tab_to("#sip-server")
    page.press(f"sip:bob@{at}")
    page.tab_to("#look")
    page.press("\ue007")
    page.wait(
        "document.querySelector('#preview')?.innerText.startsWith('OPTIONS sip:bob@')", "there is no preview"
    )
    page.tab_to("#sip-server")
    page.press("\ue007")
    page.wait("document.querySelectorAll('#ladder svg a').length === 2", "there is no ladder")
    page.tab_to("a[href='#message-1']")
    page.press("\ue007")
    page.wait("document.querySelector('#message-1').open")
    assert "200 OK" in page.js("document.querySelector('#message-1 pre').innerText")
    assert page.js("location.hash") == "#/sip"
    assert [one for one in page.complaints() if "/api/about" not in one] == []
