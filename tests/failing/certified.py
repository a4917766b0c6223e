"""Servers with a certificate: a good one, and those that no client should take."""

from __future__ import annotations

import itertools
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

from failing.behaviour import Behaviour


@dataclass
class Certified(Behaviour):
    """For its own address, in date, and signed by an authority that the client is told to trust."""

    trusted: bool = True
    """Whether the client is told of the authority; else the server has signed for itself."""
    until: str = "21000101000000Z"
    name: str = ""
    """The address that it is for; empty: its own."""


@dataclass
class SelfSigned(Certified):
    """Right in every other way."""

    says: str = "has a certificate that it signed itself"
    trusted: bool = False


@dataclass
class Expired(Certified):
    """Right in every other way."""

    says: str = "has a certificate that has expired"
    until: str = "20010102000000Z"


@dataclass
class OtherName(Certified):
    """Right in every other way."""

    says: str = "has a certificate for another address"
    name: str = "10.91.0.99"


FILES = itertools.count(1)
CONFIG = """
[req]
distinguished_name = name
prompt = no
[name]
CN = netdyno test
[authority]
basicConstraints = critical, CA:TRUE
[server]
basicConstraints = critical, CA:FALSE
subjectAltName = IP:{address}
[ca]
default_ca = it
[it]
database = {base}.index
new_certs_dir = {folder}
default_md = sha256
policy = policy
rand_serial = yes
unique_subject = no
x509_extensions = server
[policy]
commonName = supplied
"""


def certificate(folder: Path, address: str, kind: Certified) -> tuple[ssl.SSLContext, Path]:
    """What such a server at this address listens with, and the file of the authority."""
    base = folder / f"certificate{next(FILES)}"
    config, ca, cert, key = (base.with_suffix(f".{end}") for end in ("conf", "ca", "pem", "key"))
    config.write_text(CONFIG.format(address=kind.name or address, base=base, folder=folder))
    base.with_suffix(".index").write_text("")
    new = (
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-config",
        str(config),
    )
    if not kind.trusted:
        _openssl(
            "req",
            "-x509",
            "-days",
            "36500",
            "-extensions",
            "server",
            *new,
            "-keyout",
            key,
            "-out",
            cert,
        )
    else:
        ca_key, request = base.with_suffix(".ca.key"), base.with_suffix(".csr")
        _openssl(
            "req",
            "-x509",
            "-days",
            "36500",
            "-extensions",
            "authority",
            *new,
            "-keyout",
            ca_key,
            "-out",
            ca,
        )
        _openssl("req", *new, "-keyout", key, "-out", request)
        dates = ("-startdate", "20010101000000Z", "-enddate", kind.until)
        files = ("-cert", ca, "-keyfile", ca_key, "-in", request, "-out", cert)
        _openssl("ca", "-batch", "-notext", "-config", config, *dates, *files)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(cert, key)
    return made, ca


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
