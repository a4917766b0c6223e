"""Real servers that end TLS, or refuse it: what is said is what happened; and certificates that curl -k and openssl take."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
from failing.certified import _openssl
from lab import Done, Lab, group, profile, until
from ports import free_port
from test_causes import answers

INSECURE = {"insecure": True}
APACHE = """
ServerRoot {base}
PidFile {base}/apache.pid
ErrorLog {base}/apache.log
Listen 127.0.0.1:{port}
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule socache_shmcb_module /usr/lib/apache2/modules/mod_socache_shmcb.so
LoadModule ssl_module /usr/lib/apache2/modules/mod_ssl.so
ServerName localhost
DocumentRoot {base}
SSLEngine on
SSLProtocol TLSv1.2
SSLCertificateFile {cert}
SSLCertificateKeyFile {key}
SSLCACertificateFile {ca}
<Location /private>
  SSLVerifyClient require
</Location>
"""


def made(folder: Path, name: str, *kind: str) -> tuple[str, str]:
    """A certificate that signed itself, and its key."""
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    _openssl(
        "req",
        "-x509",
        "-nodes",
        "-days",
        "9",
        "-subj",
        "/CN=netdyno test",
        *kind,
        "-keyout",
        key,
        "-out",
        cert,
    )
    return str(cert), str(key)


def version_1(folder: Path, name: str, ca: tuple[str, str]) -> tuple[str, str]:
    """A certificate of X.509 v1, as `openssl x509 -req` without extensions makes it."""
    cert, key, request = (folder / f"{name}.{end}" for end in ("pem", "key", "csr"))
    _openssl("req", "-nodes", "-newkey", "rsa:2048", "-subj", "/CN=device", "-keyout", key, "-out", request)
    _openssl("x509", "-req", "-in", request, "-CA", ca[0], "-CAkey", ca[1], "-days", "9", "-out", cert)
    text = folder / f"{name}.txt"
    _openssl("x509", "-in", cert, "-noout", "-text", "-out", text)
    assert "Version: 1 (0x0)" in text.read_text()
    return str(cert), str(key)


class Servers:
    """Servers of `openssl s_server`, and groups that ask them."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.groups: list[dict[str, Any]] = []
        self.ports: list[int] = []

    def serve(self, name: str, files: tuple[str, str], *options: str, **tls: Any) -> None:
        port = free_port()
        at = ("-accept", f"127.0.0.1:{port}", "-cert", files[0], "-key", files[1])
        self.lab.spawn("openssl", "s_server", "-quiet", "-www", *at, *options)
        self.ports.append(port)
        self.ask(name, port, **tls)

    def ask(self, name: str, port: int, path: str = "/", **tls: Any) -> None:
        model = {"http": {"keep_alive": False, "path": path, "interval": "100ms"}}
        self.groups.append(group(name, f"https://127.0.0.1:{port}", model, tls={**INSECURE, **tls}))

    def run(self) -> Done:
        for port in self.ports:
            until(lambda port=port: answers(port), 60, f"nothing listens at {port}")
        done = self.lab.run("run", self.lab.write("p.json", profile(*self.groups, measure="3s")))
        assert done.folder, done.text
        return done


def causes(done: Done) -> dict[str, set[str]]:
    """By group, what failed, as `kind: cause`."""
    return {
        one.name: {f"{error.kind}: {cause.cause}" for error in one.errors for cause in error.causes}
        for one in done.trial.groups
    }


def test_why_tls_ended_is_what_happened(lab: Lab) -> None:
    servers = Servers(lab)
    rsa = made(lab.base, "rsa", "-newkey", "rsa:2048")
    device = version_1(lab.base, "device", rsa)
    other = made(lab.base, "other", "-newkey", "rsa:2048")
    wants = ("-Verify", "1", "-verify_return_error", "-CAfile", rsa[0])
    for version in ("2", "3"):
        servers.serve(f"wants-1{version}", rsa, f"-tls1_{version}", *wants)
        servers.serve(f"other-1{version}", rsa, f"-tls1_{version}", *wants, cert=other[0], key=other[1])
        servers.serve(f"v1-1{version}", rsa, f"-tls1_{version}", *wants, cert=device[0], key=device[1])
    # it has CA:TRUE, and is trusted as it was named
    own = made(lab.base, "own", "-newkey", "rsa:2048", "-addext", "subjectAltName=IP:127.0.0.1")
    servers.serve("own", own, insecure=False, ca=own[0])
    servers.serve("no-cipher", rsa, "-tls1_2", "-cipher", "AES256-SHA")
    apache = free_port()
    text = APACHE.format(base=lab.base, port=apache, cert=rsa[0], key=rsa[1], ca=rsa[0])
    lab.spawn("apache2", "-X", "-f", lab.write("apache.conf", text))
    servers.ports.append(apache)
    servers.ask("renegotiation", apache, "/private")
    done = servers.run()
    seen = causes(done)
    for version in ("2", "3"):
        assert seen[f"wants-1{version}"] == {"tls: client certificate required"}, seen
        assert seen[f"other-1{version}"] == {"tls: client certificate refused"}, seen
        assert seen[f"v1-1{version}"] == set(), seen
    assert seen["own"] == set(), seen
    assert seen["no-cipher"] == {"tls: alert handshake_failure"}, seen
    assert seen["renegotiation"] == {"tls: renegotiation"}, seen
    lines = " ".join(done.out.split())
    assert "the server wants a client certificate: name it" in lines
    assert "the server asked for renegotiation, which this client does not do" in lines
    # it is on already
    assert "use --insecure" not in lines and "insecure: true" not in lines


@pytest.mark.parametrize("version", ["2", "3"])
def test_insecure_accepts_what_curl_k_accepts(lab: Lab, version: str) -> None:
    servers = Servers(lab)
    rsa = made(lab.base, "rsa", "-newkey", "rsa:2048")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:secp521r1")
    old = version_1(lab.base, "old", rsa)
    servers.serve("v1", old, f"-tls1_{version}")
    small = made(lab.base, "small", "-newkey", "rsa:1024")
    servers.serve("rsa-1024", small, f"-tls1_{version}", "-cipher", "DEFAULT:@SECLEVEL=0")
    if version == "3":
        # in TLS 1.2 the curve has to be one of the client's for key exchange too (RFC 8422 section 5.1)
        servers.serve("p-521", made(lab.base, "p521", *curve), "-tls1_3")
    done = servers.run()
    assert not any(causes(done).values()), causes(done)
    assert all(one.total.messages_delivered > 0 for one in done.trial.groups)
    # and without it the fault is named
    for one in servers.groups:
        one["tls"] = {"ca": old[0]}
    seen = causes(servers.run())
    assert seen["v1"] == {"tls: certificate of X.509 v1"}, seen


def test_a_key_that_cannot_be_used_is_called_by_its_fault(lab: Lab) -> None:
    rsa = made(lab.base, "rsa", "-newkey", "rsa:2048")
    curve = made(lab.base, "p521", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:secp521r1")
    pss = made(lab.base, "pss", "-newkey", "rsa-pss")
    device = version_1(lab.base, "device", rsa)
    for cert, key, what in (
        (*curve, "is of a kind or size that is not supported"),
        (*pss, "is of a kind or size that is not supported"),
        (device[0], rsa[1], "does not fit the certificate"),
        (made(lab.base, "new", "-newkey", "rsa:2048")[0], rsa[1], "does not fit the certificate"),
    ):
        one = group("w", "https://127.0.0.1:9", {"http": {}}, tls={**INSECURE, "cert": cert, "key": key})
        done = lab.run("run", lab.write("p.json", profile(one)))
        text = " ".join(done.text.split())
        assert done.code == 92 and what in text, text
        assert ("does not fit" in text) == ("fit" in what), text


def server(cert: tuple[str, str]) -> tuple[int, threading.Thread]:
    """Ends its responses with the connection, and with the alert of TLS where the path asks for it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*cert)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.5)

    def one(raw: socket.socket) -> None:
        with raw:
            raw.settimeout(10)
            try:
                tls = context.wrap_socket(raw.dup(), server_side=True)
                head = tls.recv(4096).decode()
                path = head.split()[1] if head else ""
                length = "Content-Length: 5\r\n" if path == "/length" else ""
                tls.sendall(f"HTTP/1.1 200 OK\r\nConnection: close\r\n{length}\r\nhello".encode())
                if path == "/alert":
                    tls.unwrap()
                tls.close()
            except (OSError, ValueError):
                pass

    def serve() -> None:
        while listener.fileno() >= 0:
            try:
                raw, _ = listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            threading.Thread(target=one, args=(raw,), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return int(listener.getsockname()[1]), thread


def test_a_body_that_ends_without_close_notify_may_be_cut_short(lab: Lab) -> None:
    servers = Servers(lab)
    port, _ = server(made(lab.base, "rsa", "-newkey", "rsa:2048"))
    for path in ("cut", "alert", "length"):
        servers.ask(path, port, f"/{path}")
    done = servers.run()
    seen = causes(done)
    assert seen["cut"] == {"closed: ended without TLS close_notify"}, seen
    assert seen["alert"] == seen["length"] == set(), seen
    totals = {one.name: one.total for one in done.trial.groups}
    assert totals["cut"].messages_delivered == 0
    for name in ("alert", "length"):
        assert totals[name].messages_delivered == totals[name].messages_sent > 0, name
