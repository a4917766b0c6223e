"""Devices with connections over a DPDK port, against real servers of a kernel host: what they count is what the servers count."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from lab import MQTT, Done, Lab, Wire, group, profile, root, sh, until

pytestmark = root

PORT = "10.91.0.8"
"""Not an address of the kernel, which would answer what comes for it."""
SOCKETS: dict[str, Any] = {"sockets": {}}
DPDK: dict[str, Any] = {
    "dpdk": {"ports": [{"name": "a", "device": "af_packet:w0", "ip": f"{PORT}/24"}]},
}
NGINX = """
daemon off; worker_processes 1; pid {folder}/pid; error_log stderr; user root;
events {{ worker_connections 1000; }}
http {{
  log_format line '$remote_addr $request_uri $status $body_bytes_sent';
  access_log {folder}/access line;
  keepalive_requests 1000000;
  server {{
    listen {address}:80; root {folder};
    location /long {{ alias {folder}/long; }}
    location / {{ return 200 "twelve bytes"; }}
  }}
}}
"""


@pytest.fixture
def far(lab: Lab, cable: Wire) -> Wire:
    """A kernel host that fills checksums in, as a real one does, and asks for whom it does not know."""
    sh(*cable.at_far, "ethtool", "-K", "w1", "tx", "off")
    return cable


def web(lab: Lab, far: Wire) -> None:
    """An nginx of the test's own."""
    (lab.base / "long").write_bytes(bytes(range(256)) * 800)
    configuration = lab.write("nginx.conf", NGINX.format(folder=lab.base, address=Wire.FAR))
    lab.spawn(*far.at_far, "nginx", "-p", str(lab.base), "-e", "stderr", "-c", configuration)
    until(lambda: ":80 " in sh(*far.at_far, "ss", "-Hltn"), 60, "nginx does not listen")


def broker(lab: Lab, far: Wire) -> None:
    """A mosquitto of the test's own."""
    text = (
        f"listener 1883 {Wire.FAR}\nallow_anonymous true\nsys_interval 1\nmax_queued_messages 0\nuser root\n"
    )
    lab.spawn(*far.at_far, "mosquitto", "-c", lab.write("m.conf", text), stderr=subprocess.DEVNULL)
    until(lambda: ":1883" in sh(*far.at_far, "ss", "-Hltn"), 60, "mosquitto does not listen")


def published(far: Wire) -> int:
    """`$SYS`: PUBLISH packets received so far, as of the last second."""
    topic = "$SYS/broker/publish/messages/received"
    seen = sh(*far.at_far, "mosquitto_sub", "-h", Wire.FAR, "-t", topic, "-C", "1", "-W", "60")
    return int(seen.split()[-1])


def run(lab: Lab, far: Wire, document: dict[str, Any]) -> Done:
    """Run to its end. Counts are equal whatever the machine's load makes of the run's validity."""
    done = lab.run("run", lab.write("p.json", document), prefix=far.at_near)
    assert done.folder is not None, done.text
    return done


def totals(done: Done, name: str) -> Any:
    return next(g.total for g in done.trial.groups if g.name == name)


@pytest.mark.parametrize("path", ["/some/thing", "/long"])
def test_http_is_what_nginx_logged_and_the_same_as_over_sockets(lab: Lab, far: Wire, path: str) -> None:
    web(lab, far)
    length = 12 if path == "/some/thing" else 256 * 800
    counts = []
    for transport, address in ((DPDK, PORT), (SOCKETS, Wire.NEAR)):
        (lab.base / "access").write_text("")
        model = {"http": {"path": path, "interval": "20ms", "requests": 40}}
        load = {"closed": {"flows": 1}}
        document = profile(
            group("web", f"http://{Wire.FAR}", model, 8, load=load), measure="8s", transport=transport
        )
        done = run(lab, far, document)
        assert done.trial.transport == next(iter(transport))
        total = totals(done, "web")
        log = (lab.base / "access").read_text().splitlines()
        assert log == [f"{address} {path} 200 {length}"] * 320
        counts.append((total.messages_sent, total.messages_delivered, total.flows_failed, total.bytes_sent))
    assert counts[0] == counts[1]
    assert counts[0][:3] == (320, 320, 0)


def test_a_run_leaves_nothing_at_the_server_and_the_next_begins_anew(lab: Lab, far: Wire) -> None:
    """The server's FIN is acknowledged at the end, and the next run is not taken for the last one's connections."""
    web(lab, far)
    model = {"http": {"path": "/some/thing", "interval": "20ms"}}

    def challenges() -> int:
        return int(sh(*far.at_far, "nstat", "-asz", "TcpExtTCPChallengeACK").split()[-2])

    before = challenges()
    for _ in range(3):
        document = profile(group("web", f"http://{Wire.FAR}", model, 20), transport=DPDK)
        total = totals(run(lab, far, document), "web")
        assert total.messages_sent == total.messages_delivered > 20
        assert total.flows_failed == 0
        closing = ("state", "last-ack", "state", "closing", "state", "fin-wait-1")
        left = sh(*far.at_far, "ss", "-Htan", *closing)
        assert not left, left
    assert challenges() == before


TLS = """
daemon off; worker_processes 1; pid {folder}/pid; error_log stderr; user root;
events {{}}
http {{
  log_format line '$server_port $ssl_protocol $ssl_session_reused $status';
  access_log {folder}/access line;
  ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/key.pem;
  ssl_session_cache shared:all:1m;
  server {{ listen {address}:442 ssl; ssl_protocols TLSv1.2; return 200 "twelve bytes"; }}
  server {{ listen {address}:443 ssl; ssl_protocols TLSv1.3; return 200 "twelve bytes"; }}
}}
"""


@pytest.mark.sampled(1, of="sockets and connections over DPDK")
def test_https_resumes_its_sessions_as_over_sockets(lab: Lab, far: Wire) -> None:
    cert, key = lab.base / "cert.pem", lab.base / "key.pem"
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=netdyno test")
    named = ("-addext", f"subjectAltName=IP:{Wire.FAR}", "-keyout", str(key), "-out", str(cert))
    sh("openssl", "req", "-x509", "-nodes", *new, *named)
    configuration = lab.write("nginx.conf", TLS.format(folder=lab.base, address=Wire.FAR))
    lab.spawn(*far.at_far, "nginx", "-p", str(lab.base), "-e", "stderr", "-c", configuration)
    until(lambda: ":443 " in sh(*far.at_far, "ss", "-Hltn"), 60, "nginx does not listen")
    model = {"http": {"keep_alive": False, "interval": "50ms", "requests": 10}}
    groups = [
        group(f"v1{version}", f"https://{Wire.FAR}:44{version}", model, load={"closed": {"flows": 1}},
              tls={"insecure": True})
        for version in (2, 3)
    ]  # fmt: skip
    for transport in (DPDK, SOCKETS):
        (lab.base / "access").write_text("")
        done = run(lab, far, profile(*groups, measure="4s", transport=transport))
        for version in (2, 3):
            total = totals(done, f"v1{version}")
            assert (total.messages_sent, total.messages_delivered, total.flows_failed) == (10, 10, 0)
        log = sorted((lab.base / "access").read_text().splitlines())
        one = [f"44{version} TLSv1.{version} {how} 200" for version in (2, 3) for how in "." + "r" * 9]
        assert log == sorted(one)


def test_mqtt_is_what_the_broker_counted(lab: Lab, far: Wire) -> None:
    broker(lab, far)
    until(lambda: published(far) >= 0, 60)
    before = published(far)
    wanted = group(
        "sensors",
        f"mqtt://{Wire.FAR}",
        MQTT,
        40,
        load={"closed": {"flow_interval": "300ms"}},
        # from addresses of their own, for which the port answers
        source=["10.91.0.100-10.91.0.109"],
    )
    done = run(lab, far, profile(wanted, transport=DPDK))
    total = totals(done, "sensors")
    assert total.messages_sent == total.messages_delivered > 100
    assert total.flows_failed == 0
    until(lambda: published(far) - before >= total.messages_sent, 60, "the broker counts fewer")
    assert published(far) - before == total.messages_sent
    # every connection was closed in good order: the broker holds none
    until(lambda: "10.91.0.1" not in sh(*far.at_far, "ss", "-Htn", "state", "established"), 60)


def test_a_port_where_nobody_listens_and_an_address_of_nobody(lab: Lab, far: Wire) -> None:
    model = {"http": {"interval": "100ms"}}
    for target, cause in ((f"http://{Wire.FAR}:81", "refused"), ("http://10.91.0.77", "unreachable")):
        told = []
        for transport in (DPDK, SOCKETS):
            document = profile(group("web", target, model, 2), measure="5s", transport=transport)
            done = run(lab, far, document)
            total = totals(done, "web")
            failures = total.model_dump()["failures"]
            assert total.messages_delivered == 0
            assert {kind for kind, count in failures.items() if count} == {cause}, failures
            told.append(cause)
        assert told == [cause, cause]


FAULTS = [
    ({"groups": [group("g", "sip://10.91.0.2", {"sip": {"sockets": "shared"}})]}, "a socket of its own"),
    ({"groups": [group("g", "http://10.91.0.2", {"http": {}}, frame={})]}, "makes the frames"),
    (
        {
            "groups": [
                group("g", "http://10.91.0.2", {"http": {}}),
                group("s", "udp://10.91.0.2:7", {"stream": {"rate": "1/s"}}, frame={}),
            ]
        },
        "makes the frames of stream",
    ),
    ({"placement": [{"elements": ["a.generator"]}, {"elements": ["a.receiver"]}]}, "a queue of each port"),
    ({"port": {"ip": []}}, "an address to come from"),
    ({"port": {"impair": {}}}, "cannot be impaired"),
]


@pytest.mark.parametrize(("change", "words"), FAULTS, ids=[words for _, words in FAULTS])
def test_what_is_not_carried_is_said_before_anything_is_opened(
    lab: Lab, change: dict[str, Any], words: str
) -> None:
    port = {"name": "a", "device": "af_packet:none", "ip": f"{PORT}/24", **change.get("port", {})}
    groups = change.get("groups", [group("g", "http://10.91.0.2", {"http": {}})])
    placement = {key: change[key] for key in ("placement",) if key in change}
    document = profile(*groups, transport={"dpdk": {"ports": [port], **placement}})
    done = lab.run("validate", lab.write("p.json", document))
    assert done.code == 104, done.text
    assert "ND-104-07" in done.text
    assert words in done.text
