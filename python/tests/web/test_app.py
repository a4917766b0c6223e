"""What the routes answer: runs, files, reports, comparisons, and starts that are refused."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from netdyno.core.result import Leg, Repetition, Result
from netdyno.core.wire import PhaseLengths
from netdyno.errors import Error
from netdyno.store import Store
from netdyno.systems import SYSTEMS
from netdyno.web import assets, run_views, start
from netdyno.web.sources import Look
from tests.web.conftest import SITE, post


def test_a_finished_run_has_verdict_figures_and_charts(
    viewer: TestClient, run: str, document: dict[str, Any]
) -> None:
    found = viewer.get(f"/api/runs/{run}").json()
    assert found["row"]["id"] == run
    shown = found["run"]
    assert shown["verdict"]["state"] in ("pass", "fail", "none", "invalid")
    assert shown["legs"][0]["figures"]
    assert {chart["id"] for chart in shown["charts"]["charts"]} >= {"load", "latency", "cpu"}
    assert len(shown["thresholds"]["rows"]) == len(document["thresholds"])


def test_files_by_role_and_never_a_link(viewer: TestClient, run: str) -> None:
    names = [one["name"] for one in viewer.get(f"/api/runs/{run}").json()["files"]]
    assert names == ["series.csv"]
    answer = viewer.get(f"/api/runs/{run}/files/series.csv")
    assert answer.text == "t\n1\n"
    assert answer.headers["content-disposition"].startswith("attachment")
    for name in ("capture.pcapng", "other.txt", "flows.csv", "..%2f..%2fetc%2fpasswd", "%2e%2e", "nothing"):
        assert viewer.get(f"/api/runs/{run}/files/{name}").status_code == 404


def test_an_operator_has_packets_too(operator: TestClient, run: str) -> None:
    assert operator.get(f"/api/runs/{run}/files/capture.pcapng").content == b"packets"
    assert operator.get(f"/api/runs/{run}/files/flows.csv").status_code == 404


def test_the_result_can_be_downloaded_also_without_its_folder(
    viewer: TestClient, run: str, tmp_path: Any, document: dict[str, Any]
) -> None:
    assert viewer.get(f"/api/runs/{run}/files/result.json").json() == document
    (tmp_path / "runs" / run / "result.json").unlink()
    assert viewer.get(f"/api/runs/{run}/files/result.json").json()["id"] == run


def test_report_and_comparison_are_pages(viewer: TestClient, run: str) -> None:
    assert "<title" in viewer.get(f"/report/{run}").text
    page = viewer.get("/compare", params={"a": run, "b": run})
    assert page.status_code == 200
    assert "Both are the same run." in page.text


@pytest.mark.parametrize("name", ["none", "..", "%2e%2e%2f", "a" * 200, "%00"])
def test_there_is_no_such_run(operator: TestClient, name: str) -> None:
    assert operator.get(f"/api/runs/{name}").status_code == 404
    assert operator.get("/compare", params={"a": name, "b": name}).status_code == 404


def test_a_run_that_is_removed_leaves_its_folder(operator: TestClient, run: str, tmp_path: Any) -> None:
    headers = {"Origin": "http://127.0.0.1:7450", "Content-Type": "application/json"}
    assert operator.delete(f"/api/runs/{run}", headers=headers).status_code == 200
    assert operator.get(f"/api/runs/{run}").status_code == 404
    assert (tmp_path / "runs" / run / "result.json").is_file()


def experiment(dut: dict[str, Any], profile: Any = "http") -> dict[str, Any]:
    return {"name": "x", "legs": [{"name": "a", "profile": profile, "duts": {"web": dut}}]}


FLEET_LEG = {"name": "a", "profile": "ping", "fleet": "hosts.yaml"}
SIP_FORM = {"kind": "options", "server": "sip:127.0.0.1", "rate": "5/s"}


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({}, "ND-104-10"),
        ({"urls": ["http://127.0.0.1/"], "preset": "ping"}, "ND-104-10"),
        ({"urls": ["http://127.0.0.1/"], "more": 1}, "ND-104-10"),
        ({"urls": ["127.0.0.1"]}, "ND-104-26"),
        ({"urls": ["gopher://127.0.0.1"]}, "ND-104-26"),
        ({"urls": ["http://127.0.0.1/"], "options": {"rate": "fast"}}, "ND-104-04"),
        ({"urls": ["http://127.0.0.1/"], "options": {"speed": 1}}, "ND-104-22"),
        ({"urls": ["http://127.0.0.1/"], "options": {"devices": "many"}}, "ND-104-04"),
        ({"urls": ["https://127.0.0.1/"], "options": {"cacert": "/etc/ssl/cert.pem"}}, "ND-104-16"),
        ({"urls": ["http://127.0.0.1/"], "options": {"data": "@/etc/passwd"}}, "ND-104-16"),
        ({"preset": "no-such"}, "ND-104-23"),
        ({"preset": "../../etc/passwd"}, "ND-104-23"),
        ({"preset": {"a": 1}}, "ND-104-23"),
        ({"text": "a: ["}, "ND-104-21"),
        ({"text": "- 1"}, "ND-104-04"),
        ({"document": {"name": "x", "legs": [{"name": "a", "profile": "/etc/passwd"}]}}, "ND-104-16"),
        ({"document": {"legs": [{"name": "a", "profile": "ping"}]}}, "ND-104-24"),
        ({"document": experiment({"driver": "kamailio"})}, "ND-104-16"),
        # nor by a level of a factor
        (
            {"document": experiment({"driver": "nginx"}) | {"factors": {"duts.web.driver": ["graph"]}}},
            "ND-104-24",
        ),
        (
            {"document": experiment({"driver": "nginx"}) | {"factors": {"duts.web": [{"driver": "graph"}]}}},
            "ND-104-16",
        ),
        (
            {"document": experiment({"driver": "nginx"}) | {"factors": {"profile": ["/etc/a.json"]}}},
            "ND-104-16",
        ),
        (
            {
                "document": experiment(
                    {"driver": "http-server", "options": {"device": "net_null0", "ip": "10.0.0.1/8"}}
                )
            },
            "ND-104-16",
        ),
        (
            {
                "document": experiment(
                    {"driver": "mqtt-broker", "options": {"tls": True, "tls_cert": "/etc/x.pem"}}
                )
            },
            "ND-104-16",
        ),
        (
            {"document": experiment({"driver": "nginx"}, profile={"name": "p", "data": "/etc/passwd"})},
            "ND-104-16",
        ),
        ({"urls": ["http://127.0.0.1/"], "fleet": "lab"}, "ND-104-90"),
        ({"urls": ["http://127.0.0.1/"], "fleet": {"a": 1}}, "ND-104-90"),
        ({"document": {"name": "x", "legs": [FLEET_LEG]}}, "ND-104-90"),
        ({"system": "sip", "form": SIP_FORM, "fleet": "lab"}, "ND-104-07"),
        ({"document": {"name": "x"}, "load": "-1"}, "ND-104-05"),
        ({"document": {"name": "x"}, "load": "much"}, "ND-104-04"),
    ],
)
@pytest.mark.daemon
def test_a_start_that_cannot_be_is_refused(
    operator: TestClient, request_: dict[str, Any], expected: str
) -> None:
    answer = post(operator, "/api/start", request_)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["code"] == expected, answer.text


@pytest.mark.parametrize(
    ("changes", "at"),
    [
        ({"urls": ["127.0.0.1:8080"]}, "urls"),
        ({"duration": "soon"}, "--duration"),
        ({"repeat": "1.5"}, "--repeat"),
        ({"name": "a b"}, "name"),
        ({"options": {"rate": "fast"}}, "--rate"),
        ({"options": {"devices": "0"}}, "--devices"),
        ({"thresholds": ["quick"]}, "--threshold 'quick'"),
    ],
)
@pytest.mark.daemon
def test_what_the_form_refuses_is_told_at_its_field(
    operator: TestClient, changes: dict[str, Any], at: str
) -> None:
    error = post(operator, "/api/start", {"urls": ["http://127.0.0.1/"]} | changes).json()["error"]
    assert error["at"] == at, error
    assert error["fix"], "it says what to write"


def test_the_form_takes_what_the_command_line_takes() -> None:
    made = start.parsed(
        {"urls": ["http://127.0.0.1/"], "duration": "2", "load": "2", "options": {"rate": " 5k/s "}}
    )
    assert (made["duration"], made["load"]) == ("2s", 2.0)
    assert made["profile"]["description"].startswith("http: 5k/s requests")


def test_a_run_is_run_again_with_the_load_and_times_that_it_had(tmp_path: Path) -> None:
    given = {
        "name": "p", "phases": {"drain": "1s"},
        "groups": [{"name": "web", "target": "http://a", "devices": 10, "model": {"http": {}}}],
    }  # fmt: skip
    (tmp_path / "profile.json").write_text(json.dumps(given))
    group = given["groups"][0] | {"devices": 20, "load": {"closed": {}}, "stall": "2s"}
    measured = {"groups": [group], "phases": {"warmup": "0s", "measure": "7s", "drain": "1s"}}
    legs = [{"name": "sockets", "repetitions": [{"run": "r", "profile": measured}]}]
    plain = {"id": "r", "name": "p", "started": "", "legs": legs}
    again = run_views.profile(tmp_path, Result.model_validate(plain))
    assert again == given | {
        "groups": [given["groups"][0] | {"devices": 20}],
        "phases": {"drain": "1s", "warmup": "0s", "measure": "7s"},
    }
    # several legs are an experiment
    other = {"name": "other", "repetitions": []}
    assert run_views.profile(tmp_path, Result.model_validate(plain | {"legs": [*legs, other]})) is None


@pytest.mark.daemon
def test_an_experiment_is_judged_at_the_places_of_its_form(operator: TestClient) -> None:
    def wrong(document: dict[str, Any]) -> list[tuple[str, str]]:
        found = post(operator, "/api/validate", {"document": document}).json()
        return [(one["code"], one["at"]) for one in found["errors"]]

    good = experiment({"driver": "nginx"})
    good["factors"] = {"profile.groups.web.devices": [1, 2]}
    group = {"name": "web", "target": "web", "model": {"http": {}}}
    good["legs"][0]["profile"] = {"name": "p", "targets": {"web": "http://"}, "groups": [group]}
    assert wrong(good) == []
    # once, and not for each variant
    assert wrong(good | {"factors": {"profile.groups.web.devices": [0, -1], "trial.load": [1, 2]}})[0] == (
        "ND-104-05",
        "legs[0].profile.groups[0].devices",
    )
    assert wrong(good | {"repeat": 0}) == [("ND-104-24", "repeat")]
    assert wrong(good | {"factors": {"profile.none.x": []}})[0][0] == "ND-104-24"
    assert wrong(experiment({"driver": "graph"})) == [("ND-104-16", "legs[0].duts.web.driver")]
    schema = operator.get("/api/experiment-schema").json()
    by_driver = schema["$defs"]["DutSpec"]["properties"]["options"]["x-netdyno-by"]["driver"]
    assert "worker_processes" in by_driver["nginx"]["properties"] and "kamailio" not in by_driver
    names = {one.split("/")[-1] for one in references(schema)}
    assert names <= set(schema["$defs"])


def references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [one for value in node.values() for one in references(value)]
    return [one for value in node for one in references(value)] if isinstance(node, list) else []


def test_a_viewer_changes_no_rate(client: TestClient, viewer: TestClient, run: str) -> None:
    answer = post(viewer, f"/api/runs/{run}/rate", {"group": "web", "rate": "5/s"})
    assert answer.status_code == 403, answer.text


@pytest.mark.parametrize("what", ["preview", "send"])
def test_only_an_operator_composes_for_a_system(client: TestClient, viewer: TestClient, what: str) -> None:
    answer = post(viewer, f"/api/sip/{what}", {"server": "sip:127.0.0.1:9"})
    assert answer.status_code == 403, answer.text


def test_a_system_answers_on_the_dashboard(operator: TestClient) -> None:
    found = post(operator, "/api/sip/preview", {"server": "sip:192.0.2.1"}).json()
    assert found["message"].startswith("OPTIONS sip:192.0.2.1 SIP/2.0")
    assert post(operator, "/api/sip/preview", {"server": "x"}).json()["error"]["code"] == "ND-104-22"
    assert post(operator, "/api/sip/none", {}).status_code == 404


def test_a_rate_of_a_run_that_is_over_is_refused(operator: TestClient, run: str) -> None:
    answer = post(operator, f"/api/runs/{run}/rate", {"group": "web", "rate": "5/s"})
    assert answer.json()["error"]["code"] == "ND-104-11", answer.text
    answer = post(operator, f"/api/runs/{run}/rate", {"group": "web", "rate": 5})
    assert answer.json()["error"]["code"] == "ND-104-10", answer.text


def test_yaml_becomes_a_document_and_back(operator: TestClient) -> None:
    document = {"name": "x", "groups": [{"name": "a", "devices": 2}]}
    text = post(operator, "/api/convert", {"document": document}).json()["text"]
    assert text.startswith("name: x\n")
    assert post(operator, "/api/convert", {"text": text}).json()["document"] == document
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(97 + i)}: &{chr(97 + i)} [{','.join([f'*{chr(96 + i)}'] * 9)}]\n" for i in range(1, 12)
    )
    assert post(operator, "/api/convert", {"text": bomb}).json()["error"]["code"] == "ND-104-32"


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000, "{", '{"document": ' + "[" * 900 + "]" * 900 + "}", '{"document": ' + "9" * 5_000 + "}",
        '{"document": {"devices": 1e999}}', '{"document": NaN}', '{"urls": ["http://[/"]}', "\ud800".encode(errors="surrogatepass"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/api/convert", "/api/validate"])
@pytest.mark.daemon
def test_bodies_that_are_none_are_told(operator: TestClient, path: str, text: str | bytes) -> None:
    headers = {"Origin": SITE, "Content-Type": "application/json"}
    answer = operator.post(path, content=text, headers=headers)
    assert answer.status_code in (200, 400, 413), answer.text


def test_what_cannot_be_read_is_no_fault_of_ours(operator: TestClient) -> None:
    headers = {"Origin": "http://127.0.0.1:7450", "Content-Type": "application/json"}
    for content in (b"", b"{", b"[]", b"\xff", b"[" * 100_000):
        answer = operator.post("/api/start", content=content, headers=headers)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] in ("ND-104-01", "ND-104-10")


def test_all_that_a_browser_loads_is_small() -> None:
    sizes = {name: len(one.packed) for name, one in assets.all_assets().items()}
    assert sum(sizes.values()) <= 150_000, sizes
    text = json.loads(assets.all_assets()["texts.json"].text)
    assert set(text) == {"en", "ko"}


def test_assets_are_cached_and_compressed(client: TestClient) -> None:
    first = client.get("/assets/main.js")
    assert first.headers["content-encoding"] == "gzip"
    assert first.headers["content-type"].startswith("text/javascript")
    again = client.get("/assets/main.js", headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304
    for known in (f"W/{first.headers['etag']}", f'"other", {first.headers["etag"]}', "*"):
        assert client.get("/assets/main.js", headers={"If-None-Match": known}).status_code == 304, known
    for codings in ("gzip;q=0", "identity", "br, gzip; q=0.0"):
        plain = client.get("/assets/main.js", headers={"Accept-Encoding": codings})
        assert "content-encoding" not in plain.headers and plain.headers["etag"] != first.headers["etag"]
    assert client.get("/assets/none.js").status_code == 404
    assert client.get("/assets/..%2fapp.py").status_code == 404


def test_anybody_who_is_logged_in_looks_at_systems_and_only_an_operator_acts(
    client: TestClient, viewer: TestClient
) -> None:
    looks = [f"/api/{system.name}/{name}" for system in SYSTEMS for name in system.looks]
    acts = [f"/api/{system.name}/{name}" for system in SYSTEMS for name in system.answers]
    assert looks and acts
    for path in looks:
        assert viewer.get(path).status_code not in (401, 403), path
    for path in (*looks, *acts):
        assert post(viewer, path, {}).status_code == 403, path
    viewer.cookies.clear()
    for path in looks:
        assert viewer.get(path).status_code == 401, path


def test_pages_of_systems_are_there(client: TestClient) -> None:
    pages = client.get("/assets/pages.json").json()
    assert [one["path"] for one in pages] == [one.path for system in SYSTEMS for one in system.dashboard]
    for one in pages:
        assert "export function open(" in client.get(f"/assets/{one['script']}").text


def test_what_a_system_shows_is_told_when_it_changes_and_when_it_cannot() -> None:
    answers: list[Any] = [{"n": 1}, {"n": 1}, Error("ND-104-35", "no NAT runs here"), {"n": 2}]

    def look(_: Any) -> Any:
        found = answers.pop(0)
        if isinstance(found, Error):
            raise found
        return found

    async def main() -> None:
        source = Look(look, {})
        assert await source.read() == {"n": 1}
        assert await source.read() is None
        assert (await source.read())["error"]["code"] == "ND-104-35"
        assert await source.read() == await source.snapshot() == {"n": 2}

    asyncio.run(main())


@pytest.mark.parametrize(
    "kind",
    ["switch-compare", "chain-run", "chain-search", "screen", "search", "compare", "reproduce", "learn"],
)
def test_a_study_opens_as_a_run_does(viewer: TestClient, tmp_path: Path, kind: str) -> None:
    trial = Repetition(
        run="1",
        transport="",
        started="",
        phases=PhaseLengths(warmup=0, measure=0, drain=0),
        profile={},
        index=1,
    )
    made = Result(
        id=f"study-{kind}", kind=kind, name=kind, started="2026-11-29T10:00:00Z", valid=True,
        finished="2026-11-29T11:00:00Z", finding="b is better", legs=[Leg(name="a", repetitions=[trial])],
    )  # fmt: skip
    with Store() as store:
        store.put(made, tmp_path)
    found = viewer.get(f"/api/runs/{made.id}").json()
    assert (found["run"]["kind"], found["run"]["finding"]) == (kind, "b is better")
    assert found["run"]["verdict"]["state"] != "invalid" and found["networks"] == []


def test_a_trend_is_of_runs_with_the_target_of_one(
    viewer: TestClient, run: str, document: dict[str, Any], tmp_path: Path
) -> None:
    def entered(number: int, **changes: Any) -> str:
        changes = {
            "id": f"20270101-00000{number}-other-000000",
            "started": f"2027-01-01T00:00:0{number}Z",
        } | changes
        one = Result.model_validate(json.loads(json.dumps(document)) | changes)
        if changes.get("target"):
            for group in (group for leg in one.legs for group in leg.summary.groups):
                group.target = changes["target"]
        with Store() as store:
            store.put(one, tmp_path / "runs" / one.id)
        return one.id

    later = entered(1)
    other_name = entered(2, name="other")
    entered(3, target="http://elsewhere/")
    invalid = entered(4, valid=False)
    found = viewer.get(f"/api/trend/{run}").json()
    assert [one["id"] for one in found["runs"]] == [run, later, other_name, invalid], "the oldest first"
    assert found["metric"].endswith(".p99") and found["metric"] in {one["id"] for one in found["metrics"]}
    (view,) = found["chart"]["views"]
    assert view["x"] == [1, 2, 3, 4] and [len([v for v in one["values"] if v]) for one in view["lines"]] == [
        3,
        1,
    ]
    named = viewer.get(f"/api/trend/{run}", params={"named": "1", "metric": found["metrics"][0]["id"]}).json()
    assert [one["id"] for one in named["runs"]] == [run, later, invalid]
    assert named["metric"] == found["metrics"][0]["id"]
    # trials of another leg are of another load or transport
    assert found["leg"] == found["legs"][0] and len(found["legs"]) > 1
    each = [viewer.get(f"/api/trend/{run}", params={"leg": leg}).json() for leg in found["legs"]]
    values = [one["chart"]["views"][0]["lines"][0]["values"][0] for one in each]
    metrics = [one["metric"] for one in each]
    for leg, value, metric in zip(document["legs"], values, metrics, strict=True):
        group, _, delay, stat = metric.split(".")
        groups = [one for trial in leg["repetitions"] for one in trial["groups"] if one["name"] == group]
        trials = [one["delays"][delay][stat] for one in groups]
        assert value == pytest.approx(sum(trials) / len(trials))
    for path in (f"/api/trend/{run}?metric=mood", f"/api/trend/{run}?leg=x", "/api/trend/nothing"):
        assert viewer.get(path).json()["error"]["code"] == "ND-104-25"


def test_no_page_of_a_system_replaces_a_file_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = next(one for one in SYSTEMS if one.name == "fleet")
    page = dataclasses.replace(fleet.dashboard[0], script="charts.js")
    monkeypatch.setattr(assets, "SYSTEMS", (dataclasses.replace(fleet, dashboard=(page,)),))
    with pytest.raises(AssertionError, match=r"charts\.js of fleet"):
        assets.all_assets.__wrapped__()
