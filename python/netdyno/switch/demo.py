"""`netdyno demo switch`: a bridge against Open vSwitch, then a chain of a firewall and a NAT, proven."""

from __future__ import annotations

import os
from pathlib import Path

from netdyno import files
from netdyno.cli import console
from netdyno.cli.execute import put_back
from netdyno.lab.topology import need_root
from netdyno.switch import compare
from netdyno.switch.bench import Spec
from netdyno.switch.chain import verify as verifying
from netdyno.switch.chain.lab import ChainLab
from netdyno.switch.chain.proof import must_hold
from netdyno.switch.chain.spec import REST, checked
from netdyno.switch.compare import ComparisonRequest
from netdyno.switch.verbs.chain import path_text, report
from netdyno.switch.verbs.compare import Progress, show_arms, stored
from netdyno.system.interrupt import Interrupts

SWITCHES = ("linux-bridge", "ovs-netdev")
REPEAT = 6
"""The least with which one metric can show a difference at 5 %."""
CHAIN = {
    "vnfs": {"firewall": {"kind": "firewall", "options": {"deny": ["tcp/23"]}}, "nat": {"kind": "nat"}},
    "chain": ["firewall", "nat"],
    "classes": {
        "telnet": {
            "match": {"protocol": "tcp", "port": 23}, "chain": ["firewall", "nat"], "blocked_by": "firewall",
        }
    },
}  # fmt: skip


def run(as_json: bool, html: Path | None, runs: Path | None) -> None:
    """Run it, show it, and leave result and report in the folder of the run."""
    need_root()
    if runs:
        os.environ["NETDYNO_RUNS"] = str(runs)
    put_back()
    chain = checked(CHAIN, "demo")
    request = ComparisonRequest(
        SWITCHES, Spec(options={"seconds": 1}), repeat=REPEAT, metrics=["throughput"], fresh=True
    )
    told = Progress()
    with Interrupts().installed() as interrupts:
        found = compare.compare(request, console.note, told.trial, interrupts.shielded)
        with ChainLab(chain, shield=interrupts.shielded) as lab:
            proof = verifying.verify(lab)
    if html:
        from netdyno.report.studies import render

        files.write(html, render([found.document]), shared=True)
    if as_json:
        console.document({"compare": found.document["result"], "chain": proof.document()})
    else:
        show_arms(found.arms, found.contrasts, found.metrics, found.study.bench, found.repeat)
        console.line(f"chain: {path_text(chain, REST)}; telnet: {path_text(chain, 'telnet')}")
        report(proof)
        stored(found.study, found.document)
    must_hold(proof, "demo")
