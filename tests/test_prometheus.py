"""A real Prometheus scrapes a run while it lasts: its counts are the result's, and the Grafana board has data."""

from __future__ import annotations

import contextlib
import json
import shutil
import urllib.parse
import urllib.request
from typing import Any

import pytest
from lab import PATIENT, ROOT, Lab, until
from ports import free_port

BOARD = ROOT / "examples/grafana/netdyno.json"
VARIABLES = {"$__rate_interval": "10s", "$__range": "1h", "$run": ".*", "$leg": ".*", "$group": ".*"}
LOAD = {
    "name": "scraped",
    "phases": {"warmup": "0s", "measure": "20s", "drain": "1s", "sample": "200ms"},
    "targets": {"host": "ping://127.0.0.1"},
    "groups": [
        {"name": "echo", "target": "host", "devices": 2, "model": {"ping": {"interval": "100ms"}}},
    ],
    "validity": PATIENT,
}
CONFIG = """\
global: {{scrape_interval: 500ms, scrape_timeout: 500ms}}
scrape_configs:
  - job_name: netdyno
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""
NOT_HERE = (
    "dut_",
    "failures",
    "messages_duplicate",
    "reordered",
    "netdyno_passed",
    "netdyno_valid",
    "netdyno_verdict",
    "waiting",
)
"""What a run of this kind has no series of: no device under test, no failure, and no verdict before its end."""


def asked(port: int, expression: str) -> list[Any]:
    """What Prometheus answers to an expression."""
    where = f"http://127.0.0.1:{port}/api/v1/query?query={urllib.parse.quote(expression)}"
    with urllib.request.urlopen(where, timeout=30) as answer:
        document = json.load(answer)
    assert document["status"] == "success", document
    found: list[Any] = document["data"]["result"]
    return found


@pytest.mark.limit(240)
def test_a_real_prometheus_scrapes_what_the_result_says(lab: Lab) -> None:
    if not shutil.which("prometheus"):
        pytest.skip("needs prometheus (Debian: prometheus)")
    ours, theirs = free_port(), free_port()
    config = lab.write("prometheus.yml", CONFIG.format(port=ours))
    listen = f"--web.listen-address=127.0.0.1:{theirs}"
    lab.spawn("prometheus", f"--config.file={config}", f"--storage.tsdb.path={lab.base}/prometheus", listen)

    def ready() -> bool:
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{theirs}/-/ready", timeout=5).status == 200
        except OSError:
            return False

    until(ready, 90, "Prometheus does not start")
    child = lab.start("run", lab.write("load.json", LOAD), "--prometheus", f"127.0.0.1:{ours}", "-q")
    until(lambda: len(asked(theirs, "netdyno_messages_sent_total > 30")) == 1, 90, "nothing is scraped")
    expected = {}
    for panel in json.loads(BOARD.read_text())["panels"]:
        for target in panel["targets"]:
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            if not any(word in f"{panel['title']}: {expression}" for word in NOT_HERE):
                expected[f"{panel['title']}: {expression}"] = expression

    def empty() -> list[str]:
        return [one for one, expression in expected.items() if not asked(theirs, expression)]

    # a rate takes two samples, and more time on a busy machine
    with contextlib.suppress(AssertionError):
        until(lambda: not empty(), 60)
    assert empty() == []
    done = lab.wait(child)
    assert done.code == 0, done.text
    (group,) = done.trial.groups
    # it has all scrapes of the run; counters only grow, and none is above what was counted at last
    (sent,) = asked(theirs, "max_over_time(netdyno_messages_sent_total[5m])")
    assert sent["metric"]["group"] == "echo" and sent["metric"]["run"] == done.result.id
    assert 30 < float(sent["value"][1]) <= group.total.messages_sent
    assert asked(theirs, "resets(netdyno_messages_sent_total[5m])")[0]["value"][1] == "0"
