"""Real servers that say no: statuses, reason codes and faults of TLS are told apart, with the servers' own words."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path
from typing import Any

from failing.certified import Expired, OtherName, SelfSigned, _openssl, certificate
from lab import Lab, group, profile, until
from ports import free_port

from netdyno.core.result import Result
from netdyno.core.wire import FailureCount

NGINX = """
daemon off; master_process off; pid {base}/pid; error_log stderr; user root;
events {{}}
http {{
  access_log off;
  server {{
    listen 127.0.0.1:{web};
    location /401 {{ return 401; }}
    location /500 {{ return 500; }}
    location /some {{ if ($request_uri ~ "[37]$") {{ return 503; }} return 404; }}
    location / {{ return 404 "no such file: Bearer hidden-word"; }}
  }}
  server {{
    listen 127.0.0.1:{tls} ssl; ssl_certificate {cert}; ssl_certificate_key {key};
    return 200 ok;
  }}
  server {{
    listen 127.0.0.1:{tls12} ssl; ssl_certificate {cert}; ssl_certificate_key {key};
    ssl_protocols TLSv1.2; ssl_ciphers AES256-SHA; return 200 ok;
  }}
}}
"""
MOSQUITTO = """
user root
per_listener_settings true
listener {plain} 127.0.0.1
allow_anonymous false
password_file {passwords}
listener {tls} 127.0.0.1
allow_anonymous true
certfile {cert}
keyfile {key}
listener {topics} 127.0.0.1
allow_anonymous true
acl_file {acl}
"""


def answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def certified(folder: Path, kind: Any) -> tuple[Path, Path, Path]:
    """Certificate, key and the file of the authority."""
    before = {*folder.glob("certificate*.pem")}
    _, ca = certificate(folder, "127.0.0.1", kind)
    (cert,) = {*folder.glob("certificate*.pem")} - before
    return cert, cert.with_suffix(".key"), ca


def test_servers_that_say_no_are_told_apart(lab: Lab) -> None:
    web, tls, tls12, plain, mqtts, topics, expired, other, nobody = (free_port() for _ in range(9))
    cert, key, _ = certified(lab.base, SelfSigned("", ""))
    # for nginx without a common cipher: this client has no kind of key exchange by RSA
    rsa, rsa_key = lab.base / "rsa.pem", lab.base / "rsa.key"
    _openssl(
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "9",
        "-subj",
        "/CN=x",
        "-keyout",
        rsa_key,
        "-out",
        rsa,
    )
    conf = lab.write(
        "nginx.conf",
        NGINX.format(base=lab.base, web=web, tls=tls, tls12=tls12, cert=rsa, key=rsa_key),
    )
    lab.spawn("nginx", "-p", str(lab.base), "-e", "stderr", "-c", conf)
    passwords = lab.base / "passwords"
    subprocess.run(
        ["mosquitto_passwd", "-b", "-c", str(passwords), "alice", "good"],
        check=True,
        timeout=60,
    )
    acl = lab.write("acl", "topic read $SYS/#\n")
    text = MOSQUITTO.format(
        plain=plain,
        tls=mqtts,
        topics=topics,
        passwords=passwords,
        acl=acl,
        cert=cert,
        key=key,
    )
    lab.spawn("mosquitto", "-c", lab.write("mosquitto.conf", text))
    authorities = {}
    for port, kind in ((expired, Expired("", "")), (other, OtherName("", ""))):
        its_cert, its_key, authorities[port] = certified(lab.base, kind)
        lab.spawn(
            "openssl",
            "s_server",
            "-accept",
            f"127.0.0.1:{port}",
            "-cert",
            str(its_cert),
            "-key",
            str(its_key),
            "-www",
            "-quiet",
        )
    for port in (web, tls, tls12, plain, mqtts, topics, expired, other):
        until(lambda port=port: answers(port), 60, f"nothing listens at {port}")

    def http(name: str, port: int, path: str = "/", scheme: str = "http", **more: Any) -> dict[str, Any]:
        model = {
            "http": {
                "path": path,
                "interval": "20ms",
                "requests": 10,
                "headers": {"Authorization": "Bearer hidden-word"},
            }
        }
        return group(name, f"{scheme}://127.0.0.1:{port}", model, **more)

    def mqtt(
        name: str,
        port: int,
        scheme: str = "mqtt",
        more: dict[str, Any] | None = None,
        **model: Any,
    ) -> dict[str, Any]:
        return group(
            name,
            f"{scheme}://127.0.0.1:{port}",
            {"mqtt": {"qos": 1, "count": 3, **model}},
            **(more or {}),
        )

    insecure = {"tls": {"insecure": True}}
    groups = [
        http("missing", web),
        http("mixed", web, "/some/{seq}"),
        http("denied", web, "/401"),
        http("broken", web, "/500"),
        http("plain-to-tls", tls),
        http("tls-to-plain", web, scheme="https", **insecure),
        http("no-cipher", tls12, scheme="https", **insecure),
        http("unknown-issuer", tls, scheme="https"),
        http("expired", expired, scheme="https", tls={"ca": str(authorities[expired])}),
        http("other-name", other, scheme="https", tls={"ca": str(authorities[other])}),
        http("nobody", nobody),
        mqtt("v311", plain, username="alice", password="wrong"),
        mqtt("v5", plain, version="5.0", username="alice", password="wrong"),
        mqtt("mqtt-to-tls", mqtts),
        mqtt("tls-to-mqtt", plain, "mqtts", insecure),
        mqtt("mqtt-to-http", web),
        mqtt("topics", topics, version="5.0"),
    ]  # fmt: skip
    junit = lab.base / "junit.xml"
    done = lab.run("run", lab.write("p.json", profile(*groups)), "-q", "--junit", str(junit))
    assert done.code in (90, 99), done.text
    result: Result = done.result
    (leg,) = result.legs
    by = {one.name: {error.kind: error for error in one.errors} for one in leg.repetitions[0].groups}

    def only(name: str, kind: str) -> FailureCount:
        assert [*by[name]] == [kind] or kind in by[name], (name, by[name])
        return by[name][kind]

    def cause(name: str, kind: str) -> str:
        found = only(name, kind)
        assert sum(one.total or 0 for one in found.causes) == found.total, found
        return ", ".join(sorted(one.cause for one in found.causes))

    assert cause("missing", "rejected") == "404"
    example = only("missing", "rejected").example or ""
    assert (
        example.startswith("status 404 Not Found: no such file: ")
        and "hidden-word" not in done.text + example
    )
    assert cause("mixed", "rejected") == "404, 503"
    counts = {one.cause: one.total or 0 for one in only("mixed", "rejected").causes}
    assert counts["404"] > counts["503"] > 0, "3 and 7 of ten"
    assert cause("denied", "rejected") == "401" and cause("broken", "rejected") == "500"
    assert cause("plain-to-tls", "rejected") == "TLS on this port"
    assert cause("tls-to-plain", "tls") == "plain HTTP on this port"
    assert cause("no-cipher", "tls") == "alert handshake_failure"
    assert cause("unknown-issuer", "tls").startswith("certificate ")
    assert cause("expired", "tls") == "certificate expired"
    assert cause("other-name", "tls") == "certificate for another name"
    assert only("nobody", "refused").causes == []
    assert cause("v311", "rejected") == "CONNACK 0x05 not authorized"
    assert cause("v5", "rejected") == "CONNACK 0x87 not authorized"
    # mosquitto resets the connection without a word: nobody can tell more
    kind = "closed" if "closed" in by["mqtt-to-tls"] else "reset"
    assert cause("mqtt-to-tls", kind) == "closed before CONNACK"
    kind = "closed" if "closed" in by["tls-to-mqtt"] else "reset"
    assert cause("tls-to-mqtt", kind) == "closed during the TLS handshake"
    assert cause("mqtt-to-http", "protocol") == "plain HTTP on this port"
    assert cause("topics", "rejected") == "PUBACK 0x87 not authorized"
    # all of it is where people look
    for words in (
        "CONNACK 0x05 not authorized",
        "404",
        "503",
        "certificate expired",
        "the server failed: see its log",
    ):
        assert words in done.out, words
        assert words in junit.read_text(), words
        assert words in (done.folder / "report.html").read_text(), words
    assert "broken: " in done.out and "500" in done.out
    line = next(
        line
        for line in done.out.replace("\n    ", " ").splitlines()
        if "broken: " in line and "rejected" in line
    )
    assert "credentials" not in line
    log = [json.loads(line) for line in (done.folder / "log.jsonl").read_text().splitlines()]
    assert any("status 500" in json.dumps(one) for one in log)
    assert (
        "hidden-word"
        not in (done.folder / "log.jsonl").read_text() + (done.folder / "result.json").read_text()
    )
