"""Whether ports of a workload pass a chain, before its first trial; what no class proves."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

from netdyno.errors import Error
from netdyno.lab.workload import WORKLOADS
from netdyno.switch.chain import layout
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.spec import REST, Chain
from netdyno.switch.chain.steering import CLIENT, SERVER
from netdyno.switch.chain.talk import free_port
from netdyno.switch.chain.vnf import KINDS
from netdyno.system import namespace

PATIENCE = 8.0
"""Seconds in which something must pass: the kernel sends a TCP SYN four times in them."""
AGAIN = 0.2
"""Seconds between two datagrams."""
KIND = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}


def probe_ports(lab: ChainLab, workload: str, name: str) -> None:
    """Connect, or send datagrams, to each port that a workload needs. Raises Error where nothing passes."""
    for protocol, port in WORKLOADS[workload].needs_ports:
        before = {host: vnf.denied() for host, vnf in lab.vnfs.items()}
        if _passes(lab, protocol, port):
            continue
        hosts = lab.chain.hosts()
        deny = dict.fromkeys(hosts[host] for host, vnf in lab.vnfs.items() if vnf.denied() > before[host])
        what = f"nothing of {protocol}/{port}, which {workload} needs, passes the chain"
        fix = "Let it pass, or use another --workload"
        if deny:
            what += f": {', '.join(deny)} denies it"
            fix = f"Remove {protocol}/{port} from `deny`, or use another --workload"
        raise Error("ND-104-87", what, at=name, fix=fix)


def unproven(chain: Chain) -> list[str]:
    """Ports that functions deny and no class proves to be blocked, and replies of classes by DSCP without it:
    a line for each."""
    said = []
    for name, one in chain.vnfs.items():
        proven = {
            f"{of.match.protocol}/{of.match.port}"
            for of in chain.classes.values()
            if of.blocked_by == name and of.match.dscp is None
        }
        if others := [port for port in KINDS[one.kind].denies(one.options) if port not in proven]:
            said.append(
                f"{name} denies {', '.join(others)}: not tested, as no class with blocked_by: {name} has it; "
                f"traffic of the default class was tested at port {free_port(chain)} only"
            )
    return [*said, *(f"{one}: not tested" for one in unmarked(chain))]


def unmarked(chain: Chain) -> list[str]:
    """Of each class by DSCP, what becomes of replies that do not have it, a line for each."""
    said = []
    without = {name: one for name, one in chain.classes.items() if not one.match.dscp}
    for name, one in chain.classes.items():
        if not one.match.dscp or one.blocked_by:
            continue
        match = one.match
        near = {of: other.match for of, other in without.items()
                if None in (match.protocol, other.match.protocol)
                or match.protocol == other.match.protocol}  # fmt: skip
        sure = [of for of, other in near.items()
                if other.protocol in (None, match.protocol) and other.port in (None, match.port)]  # fmt: skip
        first = next(iter(sure), REST)
        path = f"take the path of {first}"
        if first in without and without[first].blocked_by:
            path = f"are dropped, as those of {first} are"
        if match.port is None and any(other.port for other in near.values()):
            path = f"are in the class of their port; others {path}"
        said.append(f"{name}: replies without DSCP {match.dscp}, as ordinary servers send them, {path}")
    return said


def _passes(lab: ChainLab, protocol: str, port: int) -> bool:
    """Whether the server gets something that the client sends to a port, and the client its answer."""
    to = layout.addresses(lab.chain).server, port
    with _server(lab, protocol, port):
        client = namespace.inside(
            lab.network.namespace(CLIENT), lambda: socket.socket(socket.AF_INET, KIND[protocol])
        )
        with contextlib.closing(client):
            client.settimeout(PATIENCE if protocol == "tcp" else AGAIN)
            until = time.monotonic() + PATIENCE
            while time.monotonic() < until:
                with contextlib.suppress(OSError):
                    client.connect(to)
                    if protocol == "tcp":
                        return True
                    client.send(b"netdyno")
                    return bool(client.recv(64))
                time.sleep(AGAIN)
    return False


@contextlib.contextmanager
def _server(lab: ChainLab, protocol: str, port: int) -> Iterator[None]:
    """Takes connections at a port of the server, or sends datagrams back."""
    made = namespace.inside(
        lab.network.namespace(SERVER), lambda: socket.socket(socket.AF_INET, KIND[protocol])
    )
    over = threading.Event()

    def answer() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                data, sender = made.recvfrom(64)
                made.sendto(data, sender)

    with contextlib.closing(made):
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(("", port))
        made.settimeout(0.1)
        if protocol == "tcp":
            made.listen(8)
            yield
            return
        echo = threading.Thread(target=answer, daemon=True)
        echo.start()
        try:
            yield
        finally:
            over.set()
            echo.join()
