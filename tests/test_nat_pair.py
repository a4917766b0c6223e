"""Two NATs as a pair between real hosts, each with ports of its own on a switch: a transfer outlives `kill -9`, a hang and a handover."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from subprocess import Popen
from typing import Any

import pytest
from lab import Lab, root, sh, until
from nat_hosts import Hosts, configuration
from test_nat_keep import Transfer

from netdyno.errors import Error
from netdyno.nat.running import connected

pytestmark = root

OFF = ("tso", "off", "gso", "off", "gro", "off", "tx", "off", "rx", "off")


def switches(hosts: Hosts) -> None:
    """On each side a switch, with the hosts on one port of it and a NAT on each of two others."""
    for side in ("in", "out"):
        sh("ip", "-n", hosts.box, "link", "add", f"br{side}", "type", "bridge")
        sh("ip", "-n", hosts.box, "link", "set", f"{side}0", "master", f"br{side}")
        for one in ("a", "b"):
            own, port = f"{one}{side}", f"{one}{side}p"
            sh(
                "ip",
                "-n",
                hosts.box,
                "link",
                "add",
                own,
                "type",
                "veth",
                "peer",
                "name",
                port,
            )
            sh("ip", "-n", hosts.box, "link", "set", port, "master", f"br{side}")
            for end in (own, port):
                sh("ip", "netns", "exec", hosts.box, "ethtool", "-K", end, *OFF)
                sh("ip", "-n", hosts.box, "link", "set", end, "up")
        sh("ip", "-n", hosts.box, "link", "set", f"br{side}", "up")


class Member:
    """One NAT of the pair."""

    def __init__(self, lab: Lab, hosts: Hosts, one: str, **more: Any) -> None:
        self.lab, self.name = lab, f"t{os.getpid()}-{one}"
        # longer than a busy machine holds a thread up
        pair = {"socket": str(lab.base / "cgn.pair"), "silence": "3s"}
        said = configuration(self.name, pair=pair, limits={"sessions": 5_000}) | more
        for side in ("in", "out"):
            said[f"{side}side"] = said[f"{side}side"] | {"device": f"af_packet:{one}{side}"}
        self.file = lab.write(f"{one}.json", said)
        self._prefix = ("ip", "netns", "exec", hosts.box)

    def start(self) -> Popen[str]:
        child = self.lab.start("nat", "run", self.file, "--for", "300s", "-q", prefix=self._prefix)
        until(
            lambda: self.pair() is not None or child.poll() is not None,
            60,
            "it does not run",
        )
        return child

    def refused(self) -> str:
        done = self.lab.run("nat", "run", self.file, "--for", "1s", prefix=self._prefix)
        assert done.code == 104, done.text
        return done.text

    def pair(self) -> dict[str, Any] | None:
        with contextlib.suppress(Error), connected(self.name) as nat:
            found: dict[str, Any] = nat.call("nat.status")["pair"]
            return found
        return None

    def knows(self, outside: str) -> bool:
        with connected(self.name) as nat:
            return outside in {one["outside"] for one in nat.call("nat.sessions")["sessions"]}

    def is_(self, role: str, synced: bool | None = None) -> Callable[[], bool]:
        def holds() -> bool:
            found = self.pair()
            return found is not None and found["role"] == role and synced in (None, found["synced"])

        return holds


@pytest.mark.sampled(4, of="NATs that run for a while")
def test_a_transfer_outlives_the_nat_that_carries_it(
    lab: Lab, hosts: Hosts, record_property: Callable[[str, object], None]
) -> None:
    switches(hosts)
    one, other = Member(lab, hosts, "a"), Member(lab, hosts, "b")

    def takeover(of: Member, cause: str) -> None:
        until(lambda: bool((of.pair() or {}).get("takeover")), 60, "no takeover is told")
        last = (of.pair() or {})["takeover"]
        assert last["cause"] == cause, last
        record_property(f"takeover_{cause}_ms", last["took_ms"])
        print(
            f"{cause}: {last['took_ms']:.2f} ms after it was noticed, {last['since_heard_ms']:.1f} ms after the last message"
        )

    first = one.start()
    assert one.is_("active")()
    transfer = Transfer(hosts)
    second = other.start()
    until(other.is_("standby", True), 60, "the standby does not know everything")
    assert other.knows(transfer.outside)
    otherwise = Member(lab, hosts, "b", pool=["203.0.113.32/28"], name=f"t{os.getpid()}-c")
    assert "the active NAT has it otherwise: pool" in otherwise.refused()
    Member(lab, hosts, "b")

    # the active one dies
    os.kill((other.pair() or {})["peer"], signal.SIGKILL)
    transfer.goes_on()
    takeover(other, "closed")
    assert other.is_("active")() and other.knows(transfer.outside)
    assert lab.wait(first).code != 0
    refused = lab.run("nat", "pair", other.name, "--hand-over")
    assert refused.code == 104 and "ND-104-37: " in refused.text, refused.text

    # it comes back as the standby, and is handed over to
    first = one.start()
    until(other.is_("active", True), 60, "the one that came back is no standby")
    assert one.is_("standby", True)() and one.knows(transfer.outside)
    with connected(one.name) as nat, pytest.raises(Error, match="standby of a pair"):
        nat.call("nat.clear", all=True)
    assert one.knows(transfer.outside)
    text = lab.good("nat", "pair", other.name, "--hand-over").out
    assert "standby since" in text, text
    until(one.is_("active", True), 60, "it was not handed over")
    transfer.goes_on()
    takeover(one, "handed_over")

    # it hangs: the other goes on, and when it wakes up it is silent
    hung = (other.pair() or {})["peer"]
    os.kill(hung, signal.SIGSTOP)
    until(
        lambda: ((other.pair() or {}).get("takeover") or {}).get("cause") == "silent",
        60,
        "nobody goes on",
    )
    transfer.goes_on()
    takeover(other, "silent")
    os.kill(hung, signal.SIGCONT)
    until(
        lambda: one.is_("standby", True)() or first.poll() is not None,
        60,
        "it translates, too",
    )
    assert other.is_("active")()
    transfer.goes_on()

    # what ends by itself hands over
    if first.poll() is not None:
        first = one.start()
        until(other.is_("active", True), 60, "no standby")
    second.send_signal(signal.SIGTERM)
    assert lab.wait(second).code == 0
    transfer.goes_on()
    assert one.is_("active")() and one.knows(transfer.outside)
    transfer.end()
    first.send_signal(signal.SIGTERM)
    assert lab.wait(first).code == 0
    lab.clean()
