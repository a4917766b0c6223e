"""The API of scripts and notebooks, against a real server on loopback and benches made of nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import netdyno
from netdyno.experiment import limits


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
        netdyno.run("http://127.0.0.1:9/", thresholds=["nonsense"], runs=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_thresholds_as_one_says_them() -> None:
    profile = {"groups": [{"name": "a"}, {"name": "b"}]}
    assert limits.thresholds(["loss <= 1%", "b.delay.response.p99≥5ms"], profile) == [
        {"metric": "a.loss", "max": "1%"},
        {"metric": "b.loss", "max": "1%"},
        {"metric": "b.delay.response.p99", "min": "5ms"},
    ]
    for wrong in ("loss", "loss < 1%", "delay <= 5ms", "<= 5", "loss <="):
        with pytest.raises(netdyno.Error) as refused:
            limits.thresholds([wrong], profile)
        assert (refused.value.code, refused.value.at) == ("ND-104-04", "--threshold"), wrong


def test_the_module_names_what_it_has() -> None:
    for name in netdyno.__all__:
        assert getattr(netdyno, name) is not None
    with pytest.raises(AttributeError):
        netdyno.nothing  # noqa: B018
