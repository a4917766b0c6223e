"""Imported k6 scripts and JMeter plans at nginx: the order, rests and values that arrive there."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest
from lab import Done, Lab, until
from ports import free_port
from test_quick import answers

PLANS = Path(__file__).resolve().parents[1] / "python/tests/importer"
NGINX = """daemon off; master_process off; pid {base}/pid; error_log stderr; user root;
events {{}}
http {{
  log_format plain '$msec $connection $status $request_method $request_uri $http_authorization';
  access_log {base}/log plain; keepalive_requests 100000;
  server {{
    listen 127.0.0.1:{port};
    location = /login {{ return 201 '{{"data": {{"token": "t$connection"}}}}'; }}
    location = /items {{ return 201 '{{"id": "i$connection"}}'; }}
    location / {{ return 200 ok; }}
  }}
}}
"""


@dataclass(frozen=True)
class Request:
    """A line of nginx's log."""

    at: float
    status: int
    what: str
    """Method and URI."""
    authorization: str


def ran(lab: Lab, plan: str, name: str) -> tuple[Done, dict[str, list[Request]]]:
    """The run of an imported plan, and the requests of each connection that nginx saw."""
    port = free_port()
    conf = lab.write("conf", NGINX.format(base=lab.base, port=port))
    lab.spawn("nginx", "-p", str(lab.base), "-e", "stderr", "-c", str(conf))
    until(lambda: answers(port), 60, "nginx does not listen")
    profile = lab.base / "plan.yaml"
    value = f"BASE=http://127.0.0.1:{port}" if name == "BASE" else f"{name}={port}"
    made = lab.run("import", str(PLANS / plan), "--output", str(profile), "--set", value)
    assert made.code == 0, made.text
    done = lab.run("run", str(profile), "-q")
    assert done.result.verdict in ("pass", "none") and done.code in (0, 90), done.text
    seen: dict[str, list[Request]] = defaultdict(list)
    for line in (lab.base / "log").read_text().splitlines():
        at, connection, status, method, uri, *rest = line.split(" ")
        seen[connection].append(Request(float(at), int(status), f"{method} {uri}", " ".join(rest)))
    total = done.trial.groups[0].total
    assert total.messages_sent == total.messages_delivered == sum(map(len, seen.values())) > 20
    return done, seen


def test_a_k6_script(lab: Lab) -> None:
    done, seen = ran(lab, "shop.js", "BASE")
    assert len(seen) == 10, "each user has one connection"
    for connection, requests in seen.items():
        turn = ["GET /", "POST /items", f"GET /items/i{connection}"]
        assert [one.what for one in requests] == [turn[i % 3] for i in range(len(requests))]
        # rests are at least as long as the script has them; nginx logs when it has answered
        for before, after in itertools.pairwise(requests):
            least = {"GET /": 0.1, "POST /items": 0.0}.get(before.what, 0.5)
            assert after.at - before.at > least - 0.002, (before, after)
    assert len(done.result.thresholds) == 3


def test_a_jmeter_plan(lab: Lab) -> None:
    _, seen = ran(lab, "shop.jmx", "port")
    assert len(seen) == 4
    for connection, requests in seen.items():
        turn = ["GET /search?q=red+shoes", "GET /item", "GET /item"]
        assert [one.what for one in requests] == [
            "POST /login",
            *(turn[i % 3] for i in range(len(requests) - 1)),
        ]
        searches = [one for one in requests if "search" in one.what]
        assert {one.authorization for one in searches} == {f"Bearer t{connection}"}
        gaps = [after.at - before.at for before, after in itertools.pairwise(requests)]
        assert min(gaps) > 0.018, "a rest of 20 to 30 ms"


def test_what_has_no_counterpart_writes_nothing(lab: Lab) -> None:
    script = lab.write(
        "s.js",
        "import http from 'k6/http';\nexport default function () {\n  if (1) { http.get('http://h/'); }\n}\n",
    )
    profile = lab.base / "s.yaml"
    done = lab.run("import", str(script), "--output", str(profile))
    assert done.code == 104 and "ND-104-75" in done.err and f"{script}:3" in done.err, done.text
    assert not profile.exists()


@pytest.mark.parametrize("name", ["plan.xml", "none.js"])
def test_a_file_that_is_none(lab: Lab, name: str) -> None:
    if name == "plan.xml":
        lab.write(name, "<x/>")
    assert lab.run("import", str(lab.base / name)).code == 104
