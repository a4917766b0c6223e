"""Whether a URL names this machine."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from urllib.parse import urlsplit


def here(url: str) -> bool:
    """Whether a URL names this machine: by loopback, by one of its addresses, or by its own name."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    if host == "localhost" or host.endswith(".localhost") or host == socket.gethostname().lower():
        return True
    try:
        family = socket.AF_INET6 if ip_address(host).version == 6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # an address that is not ours cannot be bound
            probe.bind((host, 0))
    except (OSError, ValueError):
        return False
    return not ip_address(host).is_multicast
