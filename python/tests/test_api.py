"""The API of scripts and notebooks, against a real server on loopback and benches made of nothing."""

from __future__ import annotations

import builtins
import re
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import netdyno
from netdyno import api
from netdyno.core.result import GroupSummary, Result
from netdyno.core.wire import Counts
from netdyno.experiment import limits
from netdyno.search import rfc2544
from netdyno.store import Store
from tests.report import sample
from tests.search.test_compare import finding, report

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "python.md"
URL = "http://127.0.0.1:9/"


class _Page(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as one:
        threading.Thread(target=one.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{one.server_address[1]}/"
        one.shutdown()


@pytest.mark.daemon
def test_a_run_returns_what_it_found(server: str, tmp_path: Path) -> None:
    samples: list[Mapping[str, Any]] = []
    run = netdyno.run(
        server, devices=2, rate=50, duration="1s", warmup=0, runs=tmp_path, on_sample=samples.append,
        thresholds=["delay.response.p99 <= 10min", "http.messages_delivered.rate >= 1M/s"],
    )  # fmt: skip
    judged = {one.metric: one.passed for one in run.thresholds}
    assert judged["http.delay.response.p99"] is True
    assert judged["http.messages_delivered.rate"] is False
    assert run.verdict == "fail"
    group = run.group("http")
    assert group.devices == 2
    assert group.errors == {}
    assert (
        group.count("messages_delivered") == run.result.legs[0].summary.groups[0].measured.messages_delivered
    )
    response = group.delay("response")
    assert 0 < response.min <= response.p50 <= response.p99 <= response.max < 60
    assert group.delay() == response
    # what was counted in each interval adds up to what was counted in all
    frame = run.series.to_pandas()
    assert frame["messages_sent"].sum() == run.result.legs[0].repetitions[0].groups[0].total.messages_sent
    assert frame["delay.response.p99"].max() < 60
    assert len(samples) == len(run.result.legs[0].repetitions[0].series)
    assert run.report.is_file() and run.report.parent.parent == tmp_path
    assert "<td>http</td>" in run._repr_html_()
    # kept like every other
    assert netdyno.load(run.id).result == netdyno.load(run.folder).result
    for wrong in (
        lambda: run.group("web"),
        lambda: group.delay("x"),
        lambda: group.rate("x"),
        lambda: group.count("x"),
    ):
        with pytest.raises(netdyno.Error) as refused:
            wrong()
        assert refused.value.code == "ND-104-27"


@pytest.mark.daemon
def test_what_cannot_run_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    for what, code in (
        ({"nothing": 1}, "ND-104-"),
        ("no-such-preset", "ND-104-23"),
        (tmp_path / "none.yaml", "ND-104-"),
    ):
        with pytest.raises(netdyno.Error) as refused:
            netdyno.run(what, runs=tmp_path)
        assert refused.value.code.startswith(code), what
    with pytest.raises(netdyno.Error):
        netdyno.run(URL, thresholds=["nonsense"], runs=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("what", [[], None, 5, b"x", object(), [5], {"http"}])
def test_what_is_nothing_to_run_is_refused(what: Any) -> None:
    for verb in (
        netdyno.run,
        netdyno.validate,
        lambda what: netdyno.search(what, rfc2544.loss()),
    ):
        with pytest.raises(netdyno.Error) as refused:
            verb(what)
        assert refused.value.code == "ND-104-04"
        assert refused.value.at.startswith("what")
        assert refused.value.fix


@pytest.mark.parametrize(
    ("given", "code", "at"),
    [
        ({"thresholds": "nonsense"}, "ND-104-04", "thresholds[0]"),
        ({"thresholds": ["loss <= 1%", "foo <= 1"]}, "ND-104-04", "thresholds[1]"),
        ({"thresholds": [5]}, "ND-104-04", "thresholds[0]"),
        ({"thresholds": 5}, "ND-104-04", "thresholds"),
        ({"targets": {"x": "http://h"}}, "ND-104-26", "targets"),
        ({"targets": {"x": 5}}, "ND-104-04", "targets"),
        ({"port": {"ip": "10.0.0.1/24"}}, "ND-104-04", "port"),
        ({"port": {"device": "null"}}, "ND-104-07", "port['ip']"),
        ({"repeat": 1.5}, "ND-104-04", "repeat"),
        ({"repeat": 0}, "ND-104-05", "repeat"),
        ({"load": -1}, "ND-104-05", "load"),
        ({"load": "x"}, "ND-104-04", "load"),
        ({"devices": 0}, "ND-104-05", "devices"),
        ({"rate": 0}, "ND-104-05", "rate"),
        ({"duration": -1}, "ND-104-04", "duration"),
        ({"open_loop": True}, "ND-104-07", "open_loop=True"),
        ({"socket": 5}, "ND-104-04", "socket"),
        ({"on_sample": 5}, "ND-104-04", "on_sample"),
    ],
)
def test_a_wrong_argument_is_named_with_advice(given: dict[str, Any], code: str, at: str) -> None:
    with pytest.raises(netdyno.Error) as refused:
        netdyno.run(URL, **given)
    assert (refused.value.code, refused.value.at) == (code, at)
    assert refused.value.fix
    assert "--" not in str(refused.value)


def test_advice_names_arguments_and_leaves_commands() -> None:
    with pytest.raises(netdyno.Error) as refused:
        netdyno.run(URL, open_loop=True)
    assert refused.value.fix == 'Add rate="100/s"'
    with pytest.raises(netdyno.Error) as refused:
        netdyno.run("imix", devices=3)
    assert refused.value.fix == "Use load, duration or targets, or edit the profile"
    with pytest.raises(netdyno.Error) as refused:
        netdyno.load("nothing")
    assert refused.value.fix == "`netdyno runs list` shows what there is"


@pytest.mark.parametrize("how", ["throughput", None, 5, rfc2544.throughput])
def test_what_to_search_is_named(how: Any) -> None:
    with pytest.raises(netdyno.Error) as refused:
        netdyno.search("imix", how)
    assert (refused.value.code, refused.value.at) == ("ND-104-04", "how")


@pytest.mark.parametrize(
    ("how", "at"),
    [
        ({"resolution": 1e-12}, "resolution"),
        ({"strategy": "foo"}, "strategy"),
        ({"sizes": 64}, "sizes"),
        ({"sizes": "63"}, "sizes"),
        ({"repeat": 0}, "repeat"),
        ({"pdr": 0.0}, "goal"),
    ],
)
def test_options_of_a_search_are_named_as_arguments(how: dict[str, Any], at: str) -> None:
    with pytest.raises(netdyno.Error) as refused:
        netdyno.search("imix", rfc2544.throughput(**how))
    assert refused.value.at == at
    with pytest.raises(netdyno.Error) as refused:
        netdyno.search("imix", rfc2544.throughput(), duration=0)
    assert (refused.value.code, refused.value.at) == ("ND-104-05", "duration")


def test_only_counters_are_counted() -> None:
    group = api.Group(GroupSummary(name="web", measured=Counts.model_validate({"flows_failed": 3, "own": 4})))
    assert (group.count("flows_failed"), group.count("own")) == (3, 4)
    for wrong in ("failures", "model_dump", "own_", "__class__"):
        with pytest.raises(netdyno.Error, match=r"ND-104-27.*\.errors"):
            group.count(wrong)


def kept(folder: Path, name: str, **changes: Any) -> Path:
    """A run that was measured once."""
    plain = sample.result()
    result = Result.model_validate(plain | {"id": name, "legs": plain["legs"][:1]} | changes)
    (folder / name).mkdir()
    (folder / name / "result.json").write_text(result.model_dump_json(), encoding="utf-8")
    with Store() as store:
        store.put(result, folder / name)
    return folder / name


@pytest.mark.slow
def test_kept_runs_are_listed_loaded_and_compared(tmp_path: Path) -> None:
    folders = [kept(tmp_path, name, started=f"2026-01-0{day}T00:00:00Z") for day, name in enumerate("ab", 1)]
    assert [(row.id, row.kind, Path(row.folder)) for row in netdyno.runs()] == [
        ("b", "run", folders[1]), ("a", "run", folders[0]),
    ]  # fmt: skip
    assert [row.id for row in netdyno.runs(1)] == ["b"]
    both = netdyno.compare_runs(folders[0], netdyno.load("b"))
    assert both.differences() and not both.searches
    assert {one.better for one in both.differences()} <= {None}
    assert len(both.to_pandas()) == sum(map(len, both.found.legs.values()))
    one = both.differences()[0].metric
    (only,) = netdyno.compare_runs("a", "b", metric=one).differences()
    assert only.metric == one
    # that of one leg among others
    whole = [netdyno.Run(Result.model_validate(sample.result() | {"id": name}), tmp_path) for name in "ab"]
    assert len(netdyno.compare_runs(*whole).found.legs) == 2
    assert list(netdyno.compare_runs(*whole, metric=one).found.legs) == ["iot mixed"]
    with pytest.raises(netdyno.Error, match=r"ND-104-27: at metric: .*They have: sensors"):
        netdyno.compare_runs("a", "b", metric="nobody.loss")
    refused_too: list[dict[str, Any]] = [{"metric": "foo"}, {"metric": [5]}, {"level": 7}]
    for wrong in refused_too:
        with pytest.raises(netdyno.Error) as refused:
            netdyno.compare_runs("a", "b", **wrong)
        assert refused.value.code in ("ND-104-04", "ND-104-05")
    with pytest.raises(netdyno.Error, match="ND-104-27"):
        both.differences("none")
    with pytest.raises(netdyno.Error, match="ND-104-25"):
        netdyno.compare_runs("a", "nothing")


@pytest.mark.slow
def test_a_kept_search_is_a_search(tmp_path: Path) -> None:
    found = [report(finding(load, (load - 1, load + 1))).model_dump() for load in (100.0, 90.0)]
    a, b = (kept(tmp_path, name, search=one) for name, one in zip("ab", found, strict=True))
    loaded = netdyno.load(a)
    assert isinstance(loaded, netdyno.Search) and loaded.finding().load == 100.0
    assert isinstance(netdyno.load("b"), netdyno.Search)
    both = netdyno.compare_runs(a, b)
    assert [one.better for one in both.searches] == [False]
    assert len(both.to_pandas()) == 1
    with pytest.raises(netdyno.Error) as refused:
        netdyno.compare_runs(a, b, metric="foo")
    assert (refused.value.code, refused.value.at) == ("ND-104-07", "metric")


@pytest.mark.slow
def test_a_data_frame_needs_pandas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = report(finding(100.0, (99.0, 101.0))).model_dump()
    a = netdyno.load(kept(tmp_path, "a", search=found))
    assert isinstance(a, netdyno.Search)
    both = netdyno.compare_runs(a, a)
    real = builtins.__import__

    def without(name: str, *more: Any, **named: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return real(name, *more, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    for frame in (a.to_pandas, a.series.to_pandas, both.to_pandas):
        with pytest.raises(netdyno.Error, match="ND-92-23"):
            frame()


@pytest.mark.daemon
def test_what_is_good_has_its_effective_profile() -> None:
    good = netdyno.validate(URL)
    # the load that a server on this machine gets where nothing is said
    http = {"path": "/", "requests": 0, "interval": "100000000ns"}
    assert good.profile["groups"][0]["model"] == {"http": http} and not good.advice
    with pytest.raises(netdyno.Error, match="ND-104-02") as refused:
        netdyno.validate({"groups": [{"nam": "web"}]})
    assert "nam" in refused.value.at


def test_a_setting_is_screened_searched_and_proven() -> None:
    over: list[tuple[int, int]] = []
    screened = netdyno.screen(
        "sim", trajectories=3, metrics="throughput", on_trial=lambda *one: over.append(one)
    )
    assert over[-1][0] <= over[-1][1] and len(over) == over[-1][0]
    assert {one.metric for one in screened.effects()} == {"throughput"}
    assert len(screened.to_pandas()) == len(screened.effects())
    with pytest.raises(netdyno.Error, match="ND-104-52"):
        screened.effects("failed")
    found = netdyno.tune("sim", objective="throughput", screened=screened, trials=12)
    assert (
        set(found.setting()) <= set(screened.survivors)
        and found.setting() == found.proof("throughput").setting
    )
    assert found.proven and found.valid and found.summary in repr(found)
    assert len(found.to_pandas()) == len(found.study.found.tried)
    with pytest.raises(netdyno.Error, match="ND-104-52"):
        found.setting("failed")
    # what was measured before is not measured again, and it is one run
    assert netdyno.tune("sim", objective="throughput", screened=screened.name, trials=12).run == found.run
    assert {row.kind for row in netdyno.runs()} == {"screen", "search"} and len(netdyno.runs()) == 2
    assert netdyno.load(found.run).valid


@pytest.mark.parametrize(
    ("given", "code", "at"),
    [
        ({"workload": 5}, "ND-104-04", "workload"),
        ({"workload": "nothing"}, "ND-104-31", "workload"),
        ({"objective": "foo"}, "ND-104-52", "objective"),
        ({"limits": {"failled": 0}}, "ND-104-52", "limits"),
        ({"limits": {"failed": "x"}}, "ND-104-04", "limits"),
        ({"params": "nothing"}, "ND-104-50", "params"),
        ({"trials": 4}, "ND-104-05", "trials"),
        ({"tuned": "x"}, "ND-104-04", "tuned"),
        ({"screened": 5}, "ND-104-04", "screened"),
        ({"baseline": 7}, "ND-104-04", "baseline"),
        ({"memory": "much"}, "ND-104-04", "memory"),
    ],
)
def test_wrong_arguments_of_a_tuning_are_named(given: dict[str, Any], code: str, at: str) -> None:
    with pytest.raises(netdyno.Error) as refused:
        netdyno.tune(**({"workload": "sim"} | given))
    assert (refused.value.code, refused.value.at) == (code, at)
    assert refused.value.fix and netdyno.runs() == []


@pytest.mark.daemon
def test_files_of_graphs_are_checked(tmp_path: Path) -> None:
    found = netdyno.validate(PAGE.parents[2] / "examples/graphs/mirror.yaml")
    assert (found.experiment, found.profiles, found.advice) == (None, {}, [])
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("ports: {a: {device: pair:x}}\nelements: {x: {kind: nothing}}\nedges: [a.rx -> x]\n")
    with pytest.raises(netdyno.Error, match="nothing"):
        netdyno.validate(wrong)


def examples(heading: str) -> str:
    """The example below a heading of the page."""
    (part,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (code,) = re.findall(r"```python\n(.*?)```", part, re.DOTALL)
    return str(code)


@pytest.mark.parametrize(
    "heading", ["Check before a run", "Runs that are kept", "Two runs", "A better setting"]
)
@pytest.mark.slow
def test_the_examples_of_the_page_run(
    heading: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "ab":
        kept(tmp_path, name)
    with Store() as store:
        leg = store.get("a").legs[0].summary.groups[0]
    metric = f"{leg.name}.delay.{next(iter(leg.delays))}.p99"
    exec(compile(examples(heading).replace("http.delay.response.p99", metric), heading, "exec"), {})
    assert capsys.readouterr().out


@pytest.mark.parametrize("heading", ["A load", "What a DUT bears", "Two settings"])
def test_the_page_names_what_there_is(heading: str) -> None:
    code = examples(heading)
    compile(code, heading, "exec")
    for name in re.findall(r"netdyno\.(\w+)\(", code):
        assert name in netdyno.__all__


def test_thresholds_as_one_says_them() -> None:
    profile = {"groups": [{"name": "a"}, {"name": "b"}]}
    assert limits.thresholds(["loss <= 1%", "b.delay.response.p99≥5ms"], profile) == [
        {"metric": "a.loss", "max": "1%"},
        {"metric": "b.loss", "max": "1%"},
        {"metric": "b.delay.response.p99", "min": "5ms"},
    ]
    # a port is no group's
    (of_port,) = limits.thresholds(["left.port.rx_dropped <= 0"], profile)
    assert of_port == {"metric": "left.port.rx_dropped", "max": "0"}
    for wrong in ("loss", "loss = 1%", "delay <= 5ms", "<= 5", "loss <="):
        with pytest.raises(netdyno.Error) as refused:
            limits.thresholds([wrong], profile)
        assert refused.value.code == "ND-104-04" and str(refused.value.at).startswith("--threshold '"), wrong


def test_the_module_names_what_it_has() -> None:
    for name in netdyno.__all__:
        assert getattr(netdyno, name) is not None
    with pytest.raises(AttributeError):
        netdyno.nothing  # noqa: B018
