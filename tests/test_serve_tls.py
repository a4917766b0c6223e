"""`netdyno serve` with TLS: clients of OpenSSL and our own handshake, resume and fail, and both sides count the same."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from lab import MQTT, Lab, Wire, experiment, group, profile, root, sh
from served import OWN, PEER, Served, fill_checksums

pytestmark = root

PORT = {"http": "443", "mqtt": "8883"}
TLS = {"insecure": True}


def serve(lab: Lab, cable: Wire, protocol: str, *words: str, dpdk: bool = False) -> Served:
    """A server with TLS at the far end of a cable: over sockets, or on a DPDK port."""
    if "--tls-cert" not in words:
        words = (*words, "--tls-self-signed", str(certificate(lab)))
    if dpdk:
        words = (*words, "--port", "af_packet:w1", "--prefix", "24")
        fill_checksums(cable)
    return Served(lab, cable.at_far, protocol, f"{OWN if dpdk else Wire.FAR}:{PORT[protocol]}", *words)


def certificate(lab: Lab) -> Path:
    """Where a server writes its own."""
    return lab.base / "server.pem"


def client(cable: Wire, *words: str, code: int = 0) -> str:
    """What a client at the near end prints; it ends with this code."""
    done = subprocess.run(
        [*cable.at_near, *words], capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL
    )  # fmt: skip
    assert done.returncode == code, done.stderr + done.stdout
    return done.stdout


def s_client(cable: Wire, host: str, base: Path, version: str) -> tuple[str, str]:
    """Two connections of `openssl s_client`, the second with the session of the first: what they say of them."""
    session = str(base / f"session{version}")
    common = (
        "openssl",
        "s_client",
        "-connect",
        f"{host}:443",
        "-alpn",
        "http/1.1",
        "-ign_eof",
        f"-tls{version}",
    )
    said = []
    for how in ("-sess_out", "-sess_in"):
        done = subprocess.run(
            [*cable.at_near, *common, how, session],
            input="GET /3 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        assert "HTTP/1.1 200 OK" in done.stdout and "ALPN protocol: http/1.1" in done.stdout
        said.append("Reused" if "Reused, TLSv1" in done.stdout else "New")
    return said[0], said[1]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dpdk", [False, True], ids=["sockets", "dpdk"])
def test_clients_of_openssl_handshake_resume_and_fail(lab: Lab, cable: Wire, dpdk: bool) -> None:
    served = serve(lab, cable, "http", dpdk=dpdk)
    url = f"https://{served.host}"
    curl = ("curl", "-sS", "--max-time", "60", "-o", "/dev/null", "-w", "%{http_code} %{size_download}\\n")
    trusts = ("--cacert", str(certificate(lab)))
    body = lab.base / "body"
    body.write_bytes(bytes(100_000))
    # more than any buffer on the way, and slower than it is made
    assert client(cable, *curl, *trusts, "--limit-rate", "20M", f"{url}/20000000") == "200 20000000\n"
    assert (
        client(cable, *curl, *trusts, "--tls-max", "1.2", "--data-binary", f"@{body}", f"{url}/7")
        == "200 7\n"
    )
    assert s_client(cable, served.host, lab.base, "1_2") == ("New", "Reused")
    assert s_client(cable, served.host, lab.base, "1_3") == ("New", "Reused")
    client(cable, *curl, url, code=60)
    # the alert is no HTTP
    client(cable, *curl, f"http://{served.host}:443", code=1)
    client(cable, "openssl", "s_client", "-connect", f"{served.host}:443", "-alpn", "h2", code=1)
    counters = served.counters()
    assert (counters["requests"], counters["responses"]) == (6, 6)
    assert (counters["tls_handshakes"], counters["tls_handshakes_resumed"]) == (6, 2)
    assert (counters["tls_handshakes_tls12"], counters["tls_handshakes_tls13"]) == (3, 3)
    causes = {name: count for name, count in counters.items() if name.startswith("tls_failed_") and count}
    assert causes == {"tls_failed_alert_unknown_ca": 1, "tls_failed_no_tls": 1, "tls_failed_alpn": 1}
    assert (counters["tls_handshakes_failed"], counters["tls_broken"]) == (3, 0)
    assert counters["connections"] == 9


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("dpdk", "resumption"), [(False, True), (False, False), (True, True)], ids=["sockets", "full", "dpdk"]
)
def test_what_our_load_counts_is_what_the_server_counts(
    lab: Lab, cable: Wire, dpdk: bool, resumption: bool
) -> None:
    served = serve(lab, cable, "http", *([] if resumption else ["--no-tls-resumption"]), dpdk=dpdk)
    model = {"http": {"interval": "50ms", "keep_alive": False}}
    document = profile(group("web", f"https://{served.host}/9000", model, 10, tls=TLS), measure="1s")
    document["phases"]["warmup"] = "0s"
    if dpdk:
        ports = [{"name": "a", "device": "af_packet:w0", "ip": f"{PEER}/24"}]
        document["transport"] = {"dpdk": {"ports": ports}}
    done = lab.run("run", lab.write("p.json", document), prefix=cable.at_near)
    assert done.folder is not None, done.text
    total = done.trial.groups[0].total
    counters = served.counters()
    assert (
        total.messages_sent == total.messages_delivered == counters["requests"] == counters["responses"] > 50
    )
    assert total.flows_failed == counters["tls_handshakes_failed"] == counters["tls_broken"] == 0
    # each request on a connection of its own; those that are under way at a time may find no ticket left
    # a device may have connected for its next one when the load ended
    assert counters["requests"] <= counters["tls_handshakes"] <= counters["connections"]
    assert counters["connections"] <= counters["requests"] + 10
    full = counters["tls_handshakes"] - counters["tls_handshakes_resumed"]
    assert 1 <= full < counters["requests"] / 2 if resumption else full == counters["tls_handshakes"]


@pytest.mark.parametrize("dpdk", [False, True], ids=["sockets", "dpdk"])
def test_a_broker_for_mosquitto_and_for_our_devices(lab: Lab, cable: Wire, dpdk: bool) -> None:
    served = serve(lab, cable, "mqtt", dpdk=dpdk)
    common = ("-h", served.host, "-p", "8883", "--cafile", str(certificate(lab)))
    client(cable, "mosquitto_pub", *common, "-q", "2", "-r", "-t", "a/up", "-m", "first")
    read = ("mosquitto_sub", *common, "-t", "a/+", "-C", "1", "-W", "60", "-F", "%t %r %p")
    assert client(cable, *read) == "a/up 1 first\n"
    load = group(
        "sensors", f"mqtts://{served.host}", MQTT, 20, tls=TLS, load={"closed": {"flow_interval": "300ms"}}
    )
    document = profile(load, measure="1s")
    if dpdk:
        ports = [{"name": "a", "device": "af_packet:w0", "ip": f"{PEER}/24"}]
        document["transport"] = {"dpdk": {"ports": ports}}
    done = lab.run("run", lab.write("p.json", document), prefix=cable.at_near)
    assert done.folder is not None, done.text
    total = done.trial.groups[0].total
    counters = served.counters()
    assert total.messages_sent == total.messages_delivered > 20
    received = sum(count for name, count in counters.items() if name.startswith("messages_received_qos"))
    assert received == total.messages_sent + 1
    assert counters["protocol_errors"] == counters["tls_handshakes_failed"] == counters["tls_broken"] == 0


def made(base: Path, name: str, *words: str) -> tuple[str, str]:
    """A certificate and its key."""
    cert, key = str(base / f"{name}.pem"), str(base / f"{name}.key")
    sh("openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
       "-keyout", key, "-out", cert, "-subj", f"/CN={name}", *words)  # fmt: skip
    return cert, key


def test_clients_without_the_right_certificate_are_refused(lab: Lab, cable: Wire) -> None:
    ca, ca_key = made(lab.base, "ca")
    server = made(lab.base, "server", "-addext", f"subjectAltName=IP:{Wire.FAR}")
    leaf = ("-CA", ca, "-CAkey", ca_key, "-addext", "basicConstraints=CA:FALSE")
    good, stranger = (
        made(lab.base, "good", *leaf),
        made(lab.base, "stranger", "-addext", "basicConstraints=CA:FALSE"),
    )
    served = serve(lab, cable, "http", "--tls-cert", server[0], "--tls-key", server[1], "--tls-client-ca", ca)
    groups = [
        group(name, f"https://{Wire.FAR}/", {"http": {"requests": 1}}, 1, load={"closed": {"flows": 1}}, tls=TLS | own)
        for name, own in (
            ("good", {"cert": good[0], "key": good[1]}),
            ("none", {}),
            ("stranger", {"cert": stranger[0], "key": stranger[1]}),
        )
    ]  # fmt: skip
    document = profile(*groups, measure="1s")
    document["phases"]["warmup"] = "0s"
    done = lab.run("run", lab.write("p.json", document), prefix=cable.at_near)
    assert done.folder is not None, done.text
    total = {one.name: one.total for one in done.trial.groups}
    counters = served.counters()
    assert total["good"].messages_delivered == counters["requests"] == counters["tls_handshakes"] == 1
    assert total["none"].messages_delivered == total["stranger"].messages_delivered == 0
    assert counters["tls_failed_no_client_certificate"] == 1
    assert counters["tls_failed_client_certificate"] == 1
    assert counters["tls_handshakes_failed"] == 2


@pytest.mark.full
def test_an_experiment_has_it_as_its_witness(lab: Lab) -> None:
    load = profile(
        group("http", "web", {"http": {"interval": "50ms", "keep_alive": False}}, devices=4, tls=TLS),
        group("mqtt", "broker", {"mqtt": {"qos": 1, "interval": "50ms"}}, devices=4, tls=TLS),
    )
    load["targets"] = {"web": "https://web", "broker": "mqtts://broker"}
    document = experiment(
        load,
        web={"driver": "http-server", "host": "srv", "options": {"workers": 2, "tls": True, "port": 443}},
        broker={"driver": "mqtt-broker", "host": "srv", "options": {"tls": True, "port": 8883}},
    )
    done = lab.run("run", lab.write("e.json", document))
    assert done.code == 0, done.text
    for witness in done.trial.witnesses:
        assert witness.agree and witness.ours == witness.theirs > 30, witness


def test_certificates_that_no_client_could_accept_are_told(lab: Lab) -> None:
    (cert, key), (_, other) = made(lab.base, "one"), made(lab.base, "two")
    faults: list[tuple[list[Any], str]] = [
        (["--tls-cert", cert, "--tls-key", other], "does not fit the certificate"),
        (["--tls-cert", key, "--tls-key", key], "no certificate in it"),
        (["--tls-cert", cert], "no key in it"),
        (["--tls-cert", cert, "--tls-key", key, "--tls-client-ca", key], "no certificate in it"),
        (["--tls-key", key], "--tls-cert"),
        (["--tls-client-ca", cert], "--tls-self-signed"),
        (["--tls-cert", cert, "--tls-self-signed", lab.base / "new.pem"], "one of both"),
    ]
    for words, told in faults:
        done = lab.run("serve", "http", "--listen", "127.0.0.1:0", "--duration", "1s", *map(str, words))
        assert done.code == 104 and "ND-104-74" in done.err, done.text
        assert told in done.err, done.text
