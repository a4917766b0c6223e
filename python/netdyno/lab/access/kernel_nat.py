"""The kernel's NAT of a namespace: one rule of nftables, which goes with the namespace."""

from __future__ import annotations

import subprocess

from netdyno.errors import Error
from netdyno.lab.access import plan
from netdyno.system import namespace
from netdyno.system.process import find

_RULES = f"""
table ip netdyno {{
  chain leaving {{
    type nat hook postrouting priority srcnat;
    oifname "{plan.OUTSIDE}" masquerade
  }}
}}
"""


def masquerade(space: str) -> None:
    """Have a namespace hide what it forwards behind its own address outside."""
    command = [find("nft", "nftables"), "-f", "-"]
    done = namespace.inside(
        space, lambda: subprocess.run(command, input=_RULES, capture_output=True, text=True, check=False)
    )
    if done.returncode:
        what = f"the kernel's NAT cannot be set up: {done.stderr.strip().splitlines()[-1:]}"
        raise Error("ND-92-35", what, at="nft", fix="It needs the kernel's modules nf_tables and nft_masq")


def version() -> str:
    """Of the program that sets it up."""
    done = subprocess.run([find("nft", "nftables"), "-v"], capture_output=True, text=True, check=False)
    words = done.stdout.split()
    return words[1].removeprefix("v") if len(words) > 1 else "unknown"
