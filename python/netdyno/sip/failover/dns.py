"""Questions to a DNS server: NAPTR, SRV, A and AAAA records, over UDP (RFC 1035, RFC 2782, RFC 3403)."""

from __future__ import annotations

import ipaddress
import secrets
import socket
import struct
import time
from dataclasses import dataclass

from netdyno.errors import Error

A, AAAA, SRV, NAPTR = 1, 28, 33, 35
_NAMES = {A: "A", AAAA: "AAAA", SRV: "SRV", NAPTR: "NAPTR"}
_RECORDS_MAX = 256
_HOPS_MAX = 64
"""Compression pointers of one name."""


@dataclass(frozen=True)
class Srv:
    """An SRV record."""

    priority: int
    weight: int
    port: int
    host: str


@dataclass(frozen=True)
class Naptr:
    """A NAPTR record that leads to SRV records: flag `s`."""

    order: int
    preference: int
    service: str
    """Like `SIP+D2T`."""
    name: str
    """Of the SRV records."""


class Resolver:
    """A DNS server to ask."""

    def __init__(self, address: str, port: int = 53, timeout: float = 2.0) -> None:
        self.address, self.port, self.timeout = address, port, timeout

    def srv(self, name: str) -> list[Srv]:
        """The SRV records of a name; none where there are none."""
        found = []
        for message, at, length in self._ask(name, SRV):
            try:
                priority, weight, port = struct.unpack_from("!HHH", message, at)
                host, behind = _name(message, at + 6)
            except (struct.error, IndexError, ValueError) as e:
                raise self._malformed(name) from e
            if behind != at + length:
                raise self._malformed(name)
            found.append(Srv(priority, weight, port, host))
        return found

    def naptr(self, name: str) -> list[Naptr]:
        """The NAPTR records of a name that lead to SRV records."""
        found = []
        for message, at, length in self._ask(name, NAPTR):
            try:
                order, preference = struct.unpack_from("!HH", message, at)
                flags, behind = _string(message, at + 4, at + length)
                service, behind = _string(message, behind, at + length)
                _, behind = _string(message, behind, at + length)
                target = _name(message, behind)[0]
            except (struct.error, IndexError, ValueError) as e:
                raise self._malformed(name) from e
            if flags.lower() == "s":
                found.append(Naptr(order, preference, service, target))
        return found

    def addresses(self, name: str) -> list[str]:
        """The addresses of a name, IPv4 first."""
        found = []
        for kind, size in ((A, 4), (AAAA, 16)):
            for message, at, length in self._ask(name, kind):
                if length != size:
                    raise self._malformed(name)
                found.append(str(ipaddress.ip_address(message[at : at + size])))
        return found

    def _ask(self, name: str, kind: int) -> list[tuple[bytes, int, int]]:
        """Answers of a kind: the message, where the data of each begins, and its length."""
        number = secrets.randbelow(1 << 16)
        query = struct.pack("!HHHHHH", number, 0x0100, 1, 0, 0, 0) + _written(name)
        query += struct.pack("!HH", kind, 1)
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as one:
            try:
                one.connect((self.address, self.port))
                message = self._exchange(one, query, number)
            except OSError as e:
                raise self._silent(name, kind, e.strerror or str(e)) from e
        try:
            return list(_answers(message, kind))
        except (struct.error, IndexError, ValueError) as e:
            raise self._malformed(name) from e

    def _exchange(self, one: socket.socket, query: bytes, number: int) -> bytes:
        end = time.monotonic() + self.timeout
        one.send(query)
        while (left := end - time.monotonic()) > 0:
            one.settimeout(left)
            message = one.recv(65_535)
            if len(message) >= 12 and message[:2] == query[:2] and message[2] & 0x80:
                return message
        raise TimeoutError("no answer in time")

    def _silent(self, name: str, kind: int, why: str) -> Error:
        what = f"the DNS server does not answer for {_NAMES[kind]} of {name}: {why}"
        return Error("ND-92-03", what, at=f"{self.address}:{self.port}", fix="Check --dns")

    def _malformed(self, name: str) -> Error:
        what = f"the DNS server's answer for {name} cannot be read"
        return Error("ND-92-03", what, at=f"{self.address}:{self.port}", fix="Check --dns")


def resolver(text: str) -> Resolver:
    """A DNS server as `ADDRESS[:PORT]`."""
    address, port = text, "53"
    if text.startswith("[") or text.count(":") == 1:
        address, _, port = text.rpartition(":")
    if not port.isdigit() or not 0 < int(port) < 65_536 or not address:
        raise Error("ND-104-22", f"{text!r} is no ADDRESS[:PORT]", at="--dns", fix="Like 192.0.2.53:53")
    return Resolver(address.strip("[]"), int(port))


def _written(name: str) -> bytes:
    labels = [
        label.encode("idna") if not label.isascii() else label.encode()
        for label in name.strip(".").split(".")
    ]
    if any(not 0 < len(label) < 64 for label in labels) or sum(map(len, labels)) > 240:
        raise Error("ND-104-22", f"{name!r} is no domain name", at="DOMAIN", fix="Like example.net")
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def _name(message: bytes, at: int) -> tuple[str, int]:
    """A name, and where what follows it begins."""
    labels: list[str] = []
    end, hops = 0, 0
    while (size := message[at]) != 0:
        if size >= 0xC0:
            end = end or at + 2
            at, hops = (size & 0x3F) << 8 | message[at + 1], hops + 1
            if hops > _HOPS_MAX:
                raise ValueError("a name goes round in circles")
            continue
        label = message[at + 1 : at + 1 + size]
        if len(label) < size or size > 63:
            raise ValueError("a label is cut off")
        labels.append(label.decode("ascii"))
        at += 1 + size
    return ".".join(labels), end or at + 1


def _string(message: bytes, at: int, end: int) -> tuple[str, int]:
    """A character string, and where what follows it begins."""
    behind = at + 1 + message[at]
    if behind >= end:
        raise ValueError("a string is cut off")
    return message[at + 1 : behind].decode("ascii", "replace"), behind


def _answers(message: bytes, kind: int) -> list[tuple[bytes, int, int]]:
    flags, questions, count = struct.unpack_from("!HHH", message, 2)
    if flags & 0x0F not in (0, 3):
        raise ValueError("it refuses")
    at = 12
    for _ in range(questions):
        at = _name(message, at)[1] + 4
    found = []
    for _ in range(min(count, _RECORDS_MAX)):
        at = _name(message, at)[1]
        this, _, _, length = struct.unpack_from("!HHIH", message, at)
        at += 10
        if at + length > len(message):
            raise ValueError("a record is cut off")
        if this == kind:
            found.append((message, at, length))
        at += length
    return found
