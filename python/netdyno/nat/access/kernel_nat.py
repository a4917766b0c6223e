"""The kernel's NAT of a namespace: one rule of nftables, which goes with the namespace."""

from __future__ import annotations

import subprocess
from ipaddress import IPv4Network

from netdyno.errors import Error
from netdyno.nat.access import plan
from netdyno.system import namespace
from netdyno.system.process import find

NONE = "table ip netdyno\ndelete table ip netdyno\n"
"""No rules, whether or not there were any."""


def rules(outside: str, public: str | None = None) -> str:
    """A table of its own: what leaves gets another source. Ports stay as they are where they are free.

    `public` is a prefix; the kernel takes the address by a hash of both ends, where there are several.
    """
    action = f"snat to {_range(public)}" if public else "masquerade"
    return f"""{NONE}
table ip netdyno {{
  chain leaving {{
    type nat hook postrouting priority srcnat;
    oifname "{outside}" {action}
  }}
}}
"""


def _range(prefix: str) -> str:
    network = IPv4Network(prefix)
    return f"{network[0]}-{network[-1]}" if network.num_addresses > 1 else str(network[0])


def translate(space: str, text: str, at: str) -> None:
    """Give a namespace these rules."""
    command = [find("nft", "nftables"), "-f", "-"]
    done = namespace.inside(
        space, lambda: subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    )
    if done.returncode:
        what = f"the kernel's NAT cannot be set up: {done.stderr.strip().splitlines()[-1:]}"
        fix = "It needs the kernel's modules nf_tables, nft_chain_nat and nft_masq"
        raise Error("ND-92-35", what, at=at, fix=fix)


def masquerade(space: str) -> None:
    """Have a namespace hide what it forwards behind its own address outside."""
    translate(space, rules(plan.OUTSIDE), "nft")


def version() -> str:
    """Of the program that sets it up."""
    done = subprocess.run([find("nft", "nftables"), "-v"], capture_output=True, text=True, check=False)
    words = done.stdout.split()
    return words[1].removeprefix("v") if len(words) > 1 else "unknown"
