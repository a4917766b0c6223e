"""Certificate of a server under test, for its address or name, made by the `openssl` command."""

from __future__ import annotations

import ipaddress
import subprocess
from pathlib import Path

from netdyno.errors import Error
from netdyno.system.process import find


def write(folder: Path, host: str) -> None:
    """Write `certificate.pem`, which is its own authority, and `key.pem` into the folder."""
    kind = "IP" if is_address(host) else "DNS"
    command = [
        find("openssl", "openssl"),
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
    ]
    command += ["-nodes", "-days", "30", "-subj", "/CN=netdyno", "-addext", f"subjectAltName={kind}:{host}"]
    command += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Error("ND-92-04", f"openssl makes no certificate: {words}", at=str(folder))


def is_address(host: str) -> bool:
    """Whether it is an address and no name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
