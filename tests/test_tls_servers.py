"""TLS handshakes end with real servers: versions, keys, and what is resumed."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import PATIENT, Lab, Wire, group, root, sh, until, wire

from netdyno.core.wire import GroupResult

pytestmark = root
PORTS = itertools.count(18980)
NGINX = {
    f"nginx-1{version}-{key}-{sessions}": (next(PORTS), version, key, sessions)
    for version in (2, 3)
    for key in ("rsa", "ecdsa")
    for sessions in ("tickets", "ids", "none")
}
MOSQUITTO = {
    f"mosquitto-1{version}-{key}": (next(PORTS), version, key)
    for version in (2, 3)
    for key in ("rsa", "ecdsa")
}
S_SERVER = {
    f"openssl-1{version}-{mode}": (next(PORTS), version, mode)
    for version in (2, 3)
    for mode in ("www", "rev")
}
# servers that want a certificate of the client
WANTS = {
    f"{server}-client-1{version}-{key}": (next(PORTS), server, version, key)
    for server in ("nginx", "mosquitto")
    for version in (2, 3)
    for key in ("rsa", "ecdsa")
}
NAMES = [*NGINX, *MOSQUITTO, *S_SERVER, *WANTS]
HTTP = {"http": {"keep_alive": False, "interval": "200ms"}}
SCRIPT = {"script": {"steps": [{"send": "abc\\n"}, {"expect": "cba\\n"}]}}


def certificate(base: Path, key: str) -> tuple[str, str]:
    """A key of that kind and its certificate."""
    kinds = {"rsa": ("rsa:2048",), "ecdsa": ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")}
    cert, own = base / f"{key}.pem", base / f"{key}.key"
    names = ("-subj", "/CN=netdyno test", "-addext", f"subjectAltName=IP:{Wire.FAR}")
    sh(
        "openssl",
        "req",
        "-x509",
        "-nodes",
        "-newkey",
        *kinds[key],
        "-keyout",
        str(own),
        "-out",
        str(cert),
        *names,
    )
    own.chmod(0o644)
    return str(cert), str(own)


def nginx(port: int, version: int, files: tuple[str, str], sessions: str, more: str = "") -> str:
    """A server of nginx."""
    tickets = "on" if sessions == "tickets" else "off"
    cache = f"shared:of{port}:1m" if sessions == "ids" else "off"
    return (
        f"server {{ listen {Wire.FAR}:{port} ssl; ssl_certificate {files[0]}; ssl_certificate_key {files[1]};"
        f" ssl_protocols TLSv1.{version}; ssl_session_tickets {tickets}; ssl_session_cache {cache};{more} return 200 ok; }}"
    )


def listener(port: int, version: int, files: tuple[str, str]) -> str:
    """A listener of mosquitto."""
    return (
        f"listener {port} {Wire.FAR}\ncertfile {files[0]}\nkeyfile {files[1]}\ntls_version tlsv1.{version}\n"
    )


def groups(files: dict[str, tuple[str, str]]) -> list[dict[str, Any]]:
    tls = {"tls": {"insecure": True}}
    web = [group(name, f"https://{Wire.FAR}:{port}", HTTP, 2, **tls) for name, (port, *_) in NGINX.items()]
    mqtt = {"mqtt": {"interval": "100ms", "qos": 1}}
    brokers = [
        group(name, f"mqtts://{Wire.FAR}:{port}", mqtt, 2, **tls) for name, (port, *_) in MOSQUITTO.items()
    ]
    # it serves one client at a time
    others = [
        group(name, f"{'https' if mode == 'www' else 'tls'}://{Wire.FAR}:{port}", HTTP if mode == "www" else SCRIPT, 1, **tls)
        for name, (port, _, mode) in S_SERVER.items()
    ]  # fmt: skip
    wants = [
        group(
            name,
            f"{'https' if server == 'nginx' else 'mqtts'}://{Wire.FAR}:{port}",
            HTTP if server == "nginx" else mqtt,
            2,
            tls={"insecure": True, "cert": files[key][0], "key": files[key][1]},
        )
        for name, (port, server, _, key) in WANTS.items()
    ]
    port, *_ = WANTS["nginx-client-13-rsa"]
    nobody = group("nobody", f"https://{Wire.FAR}:{port}", HTTP, 1, **tls)
    return [*web, *brokers, *others, *wants, nobody]


DPDK = {"dpdk": {"ports": [{"name": "a", "device": "af_packet:w0", "ip": "10.91.0.8/24"}]}}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param({"sockets": {}}, id="sockets"),
        pytest.param(DPDK, id="dpdk", marks=pytest.mark.full),
    ],
)
def seen(request: pytest.FixtureRequest) -> Iterator[dict[str, GroupResult]]:
    """One run over this transport against all of them, by group."""
    lab = Lab()
    try:
        with wire() as cable:
            # a veth leaves out checksums that only its own kernel can do without
            sh(*cable.at_far, "ethtool", "-K", "w1", "tx", "off")
            files = {key: certificate(lab.base, key) for key in ("rsa", "ecdsa")}
            servers = [nginx(port, version, files[key], how) for port, version, key, how in NGINX.values()]
            servers += [
                nginx(port, version, files[key], "tickets", f" ssl_verify_client on; ssl_client_certificate {files[key][0]};")
                for port, server, version, key in WANTS.values()
                if server == "nginx"
            ]  # fmt: skip
            web = f"worker_processes 1; pid {lab.base}/nginx.pid; error_log {lab.base}/error.log; events {{}}"
            web += f" http {{ access_log off; {' '.join(servers)} }}"
            lab.spawn(*cable.at_far, "nginx", "-c", lab.write("nginx.conf", web), "-g", "daemon off;")
            listeners = [listener(port, version, files[key]) for port, version, key in MOSQUITTO.values()]
            listeners += [
                listener(port, version, files[key]) + f"cafile {files[key][0]}\nrequire_certificate true\n"
                for port, server, version, key in WANTS.values()
                if server == "mosquitto"
            ]
            broker = "per_listener_settings false\nallow_anonymous true\n" + "".join(listeners)
            lab.spawn(*cable.at_far, "mosquitto", "-c", lab.write("mosquitto.conf", broker))
            for port, version, mode in S_SERVER.values():
                options = (
                    "-quiet",
                    f"-{mode}",
                    f"-tls1_{version}",
                    "-cert",
                    files["rsa"][0],
                    "-key",
                    files["rsa"][1],
                )
                # an end of input is the end of it, and what it prints of each client fills a pipe
                lab.spawn(*cable.at_far, "openssl", "s_server", "-accept", f"{Wire.FAR}:{port}", *options,
                          stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
            ports = {
                port
                for port, *_ in (*NGINX.values(), *MOSQUITTO.values(), *S_SERVER.values(), *WANTS.values())
            }
            until(lambda: ports <= listening(cable), 60, "not all servers listen")
            phases = {"warmup": "0s", "measure": "4s", "drain": "4s", "sample": "500ms"}
            document = {"name": "tls", "phases": phases, "validity": PATIENT, "groups": groups(files)}
            document["transport"] = request.param
            done = lab.run("run", lab.write("p.json", document), prefix=cable.at_near)
            assert done.folder, done.text
            yield {one.name: one for one in done.trial.groups}
    finally:
        lab.close()


def listening(cable: Wire) -> set[int]:
    """Ports that somebody listens on at the far end."""
    lines = sh(*cable.at_far, "ss", "-Htln").splitlines()
    return {int(line.split()[3].rpartition(":")[2]) for line in lines}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", NAMES)
def test_a_handshake_with_a_real_server_ends(seen: dict[str, GroupResult], name: str) -> None:
    total = seen[name].total
    assert not seen[name].errors, seen[name].errors
    assert total.messages_sent > 0
    assert total.messages_delivered == total.messages_sent


def test_a_server_that_wants_a_certificate_is_not_blamed_for_saying_so(seen: dict[str, GroupResult]) -> None:
    errors = [cause for error in seen["nobody"].errors for cause in error.causes]
    # nginx answers with a page that says so
    assert {cause.cause for cause in errors} == {"400"}, errors
    assert "No required SSL certificate was sent" in (errors[0].example or "")
