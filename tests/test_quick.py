"""Quick forms at servers of others: what `--rate` asks for is what arrives there."""

from __future__ import annotations

import socket

import pytest
from lab import Lab, until
from ports import free_port

SERVERS = {
    "nginx": (
        "daemon off; master_process off; pid {base}/pid; error_log stderr; user root;\n"
        "events {{}}\nhttp {{ access_log {base}/log; server {{ listen 127.0.0.1:{port}; keepalive_requests 20;\n"
        "location / {{ return 200 ok; }} location /missing {{ return 404; }} }} }}\n",
        ["-p", "{base}", "-e", "stderr", "-c", "{conf}"],
    ),
    "mosquitto": (
        "listener {port} 127.0.0.1\nallow_anonymous true\nuser root\nlog_dest file {base}/log\nlog_type all\n",
        ["-c", "{conf}"],
    ),
}


def answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def serve(lab: Lab, server: str) -> int:
    """A server on a free port of loopback."""
    port = free_port()
    text, arguments = SERVERS[server]
    conf = lab.write("conf", text.format(base=lab.base, port=port))
    lab.spawn(server, *[one.format(base=lab.base, conf=conf) for one in arguments])
    until(lambda: answers(port), 60, f"{server} does not listen")
    return port


SHORT = ["--warmup", "1s", "--duration", "2s", "-q"]


@pytest.mark.parametrize(("server", "scheme"), [("nginx", "http"), ("mosquitto", "mqtt")])
def test_a_rate_is_that_of_messages(lab: Lab, server: str, scheme: str) -> None:
    port = serve(lab, server)
    done = lab.run("run", f"{scheme}://127.0.0.1:{port}", "--rate", "500/s", *SHORT)
    result, trial = done.result, done.trial
    # a healthy server passes; whether the run is valid too is the machine's affair
    assert result.verdict == "pass", done.text
    assert done.code == (0 if result.valid else 90), done.text
    (group,) = trial.groups
    # each of the 50 connections has 10 messages a second of its own, one more or less at the ends of the phase
    assert group.measured.messages_intended == pytest.approx(500 * trial.phases.measure, abs=50)
    assert group.measured.messages_sent == group.measured.messages_delivered
    # the connections of the warm-up are kept: none is made in the measure phase
    assert group.devices == 50
    assert group.total.flows_started == 50
    assert group.measured.flows_started == 0


def test_one_connection_per_request_is_an_open_loop_of_flows(lab: Lab) -> None:
    port = serve(lab, "nginx")
    url = f"http://127.0.0.1:{port}"
    done = lab.run("run", url, "--rate", "100/s", "--connection-per-request", *SHORT[:-1])
    (group,) = done.trial.groups
    counts = group.measured
    assert counts.flows_intended == pytest.approx(100 * done.trial.phases.measure, abs=2)
    total = group.total
    assert total.flows_completed == total.messages_delivered == total.flows_started
    assert "100/s flows, one connection each" in done.err


def test_a_first_run_says_its_modest_load(lab: Lab) -> None:
    """Nothing said of the load: the server shares this machine's cores, and gets one that it can measure."""
    port = serve(lab, "nginx")
    done = lab.run("run", f"http://127.0.0.1:{port}", *SHORT[:-1])
    assert done.result.verdict == "pass", done.text
    counts = done.trial.groups[0].measured
    assert counts.messages_intended == pytest.approx(100 * done.trial.phases.measure, abs=10)
    assert counts.messages_sent == counts.messages_delivered
    assert "because the server is on this machine" in done.err


@pytest.mark.parametrize(
    ("server", "url", "options", "line"),
    [
        ("nginx", "http://{}/one", ["-n", "1", "--devices", "1"], "GET /one"),
        ("nginx", "http://{}/few", ["-n", "7", "--devices", "3", "--closed"], "GET /few"),
        ("nginx", "http://{}/rate", ["--requests", "1000", "--rate", "1000"], "GET /rate"),
        ("nginx", "http://{}/devices", ["-n", "3", "--devices", "20", "--rate", "30"], "GET /devices"),
        ("nginx", "http://{}/open", ["-n", "50", "--open", "--rate", "500/s"], "GET /open"),
        ("nginx", "http://{}/missing", ["-n", "101", "--devices", "4", "--closed"], "GET /missing"),
        ("mosquitto", "mqtt://{}", ["--messages", "25", "--qos", "1", "--closed"], "Received PUBLISH"),
    ],
)
def test_a_number_of_requests_is_what_the_server_counts(
    lab: Lab, server: str, url: str, options: list[str], line: str
) -> None:
    """The witness is the server's own log. A failed request is one of them."""
    port = serve(lab, server)
    wanted = int(options[1])
    done = lab.run("run", url.format(f"127.0.0.1:{port}"), *options, "-q")
    seen = (lab.base / "log").read_text().count(line)
    assert seen == wanted, done.text
    (group,) = done.trial.groups
    assert group.measured.messages_sent == group.total.messages_sent == wanted
    assert group.measured.messages_intended == wanted
    assert done.trial.phases.warmup == 0 and done.trial.phases.measure < 30
    failed = line == "GET /missing"
    assert done.result.verdict == ("fail" if failed else "pass"), done.text
    assert group.measured.messages_delivered == (0 if failed else wanted)
    # as many as were asked for is no measurement that was cut short
    assert not [reason for reason in done.result.reasons if reason.code in ("ND-90-01", "ND-90-05")]


def test_where_nothing_listens_each_attempt_is_one_of_the_requests(lab: Lab) -> None:
    done = lab.run("run", "http://127.0.0.1:1/", "-n", "5", "--devices", "2", "-q")
    (group,) = done.trial.groups
    assert (group.measured.messages_sent, sum(one.count for one in group.errors)) == (0, 5)
    assert done.result.verdict == "fail"


def test_a_time_that_is_too_short_for_the_requests_is_no_result(lab: Lab) -> None:
    port = serve(lab, "nginx")
    done = lab.run("run", f"http://127.0.0.1:{port}", "-n", "100", "--rate", "10", "--duration", "1s", "-q")
    assert done.code == 90
    assert "of 100 messages sent before the time was over" in done.text
    refused = lab.run("run", f"http://127.0.0.1:{port}", "-n", "5", "--warmup", "1s", "-q")
    assert refused.code == 104 and "--warmup" in refused.text


@pytest.mark.parametrize(
    ("typed", "at"),
    [
        (("http://nowhere.invalid/",), "http://nowhere.invalid/"),
        (("http://127.0.0.1:1/", "--source", "192.0.2.9"), "--source"),
    ],
)
def test_what_only_a_trial_finds_is_told_where_it_was_typed(
    lab: Lab, typed: tuple[str, ...], at: str
) -> None:
    done = lab.run("run", *typed, "--duration", "1s")
    assert done.code == 92
    assert f"\n  at  {at}\n" in done.err, done.err
