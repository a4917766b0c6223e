"""Addresses as options of `netdyno nat` take them."""

from __future__ import annotations

from collections.abc import Callable

from netdyno.cli.values import ipv4, refused


def subscriber(option: str) -> Callable[[str], str]:
    """An IPv4 address, with the VLANs of a subscriber after it if need be."""
    wanted = "an IPv4 address like 10.0.0.7, or one with VLANs like 10.0.0.7@100 or 10.0.0.7@100.7"
    read_address = ipv4(option)

    def read(text: str) -> str:
        address, at, tags = text.partition("@")
        read_address(address)
        parts = tags.split(".")
        known = all(one.isascii() and one.isdigit() and int(one[:5]) < 4095 for one in parts)
        if at and not (known and len(parts) <= 2):
            raise refused(text, wanted, option)
        return text

    return read
