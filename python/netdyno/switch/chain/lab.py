"""A chain made real: hosts, functions, the switch with its flows; it lives as long as it is needed."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from netdyno.errors import Error
from netdyno.lab.dut.base import DutSite
from netdyno.lab.network import Network
from netdyno.switch.chain import layout, steering
from netdyno.switch.chain.running import published
from netdyno.switch.chain.spec import Chain
from netdyno.switch.chain.steering import CLIENT, SERVER, Rule
from netdyno.switch.chain.vnf import KINDS, Vnf
from netdyno.switch.chain.vnf.base import VnfSite
from netdyno.switch.controller.base import Controller, ControllerSite
from netdyno.switch.controller.foreign import Listed, foreign
from netdyno.switch.controller.kinds import parse
from netdyno.switch.driver import DRIVERS, Switch
from netdyno.switch.driver.base import Flow, Wiring
from netdyno.switch.openflow.action import renamed
from netdyno.switch.tunnel import SWITCH, LineEnd
from netdyno.switch.wireguard import WireGuard
from netdyno.system import namespace
from netdyno.system.journal import Journal, journal
from netdyno.system.process import find


@dataclass
class ChainLab:
    """A running chain. Its parts go with it, in reverse."""

    chain: Chain
    paths: Mapping[str, Any] = field(default_factory=dict)
    """How the link of a host treats packets, as in `netdyno impair`."""
    folder: Path | None = None
    notes: Journal = field(default_factory=journal)
    shield: Callable[[], AbstractContextManager[Any]] = nullcontext
    rules: Sequence[Rule] = ()
    """Those that its description asks for."""
    vnfs: dict[str, Vnf] = field(default_factory=dict)
    """Functions by their hosts: each replica is one."""
    guards: Sequence[Flow] = ()
    """Flows beside the rules: they drop what is sent to probe functions."""
    failed: frozenset[str] = frozenset()
    """Hosts of functions that the rules do without."""
    by: Mapping[str, str] = field(default_factory=dict)
    """Of each class, the line between the switches that it takes now."""
    transit: float | None = None
    """Longest time that a packet took through the chain when it was proved, seconds; None: it was not yet."""
    _tell: Callable[[Mapping[str, str]], None] = lambda _: None
    """Tells who watches the chain which lines classes take."""
    _stack: ExitStack = field(default_factory=ExitStack)
    _network: Network | None = None
    switches: dict[str, Switch] = field(default_factory=dict)
    """By their hosts: one, or two with a tunnel between them."""
    gateways: dict[str, WireGuard] = field(default_factory=dict)
    """Of each line between both switches that is encrypted, by its name."""
    controllers: dict[str, Controller] = field(default_factory=dict)
    """Of each switch."""
    written: dict[str, Sequence[Flow]] = field(default_factory=dict)
    """Flows that each switch was given last."""

    @property
    def network(self) -> Network:
        """Its hosts and links."""
        assert self._network is not None, "it is set up"
        return self._network

    @property
    def switch(self) -> Switch:
        """The client's."""
        return self.switches[SWITCH]

    @property
    def controller(self) -> Controller:
        """Who programs the client's switch."""
        return self.controllers[SWITCH]

    def __enter__(self) -> ChainLab:
        kind = DRIVERS[self.chain.switch]
        if why := kind.missing():
            fix = "`netdyno switch list` shows which switches work here"
            raise Error("ND-92-60", f"{kind.driver} cannot run here: {why}", at="switch", fix=fix)
        for name, one in self.chain.vnfs.items():
            if needed := KINDS[one.kind].program:
                with _of(name):
                    find(*needed)
        with ExitStack() as stack:
            try:
                self._up(stack)
            except BaseException:
                with self.shield():
                    stack.close()
                raise
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self.shield():
            self._stack.close()

    def _up(self, stack: ExitStack) -> None:
        if self.folder is None:
            folder = Path(tempfile.gettempdir()) / f"nd-chain-{secrets.token_hex(8)}"
            stack.callback(self.notes.undo, self.notes.write("path", path=str(folder)))
            folder.mkdir(mode=0o700)
            self.folder = folder
        topology = layout.topology(self.chain, self.paths)
        network = Network(topology, f"c{secrets.token_hex(3)}", self.notes, self.folder / "links.jsonl")
        self._network = stack.enter_context(network)
        for line in self.chain.lines():
            if line.tunnel and line.tunnel.wireguard:
                made = WireGuard(line, network.namespace, self.folder, self.notes)
                stack.callback(made.teardown)
                made.setup()
                self.gateways[line.name] = made
        ports = layout.switch_ports(self.chain)
        known = [layout.addresses(self.chain, version) for version in self.chain.versions()]
        for host, name in self.chain.hosts().items():
            one = self.chain.vnfs[name]
            site = VnfSite(
                host, network.namespace(host), self.folder,
                [of.inside[name] for of in known if name in of.inside],
                [of.outside[name] for of in known if name in of.outside],
                {to: by for of in known for to, by in of.routes.get(name, {}).items()},
                [of.server for of in known], [of.backends for of in known], self.notes,
                {port.interface: self.folder / f"{ports[port.name]}.vhost"
                 for port in layout.shared_ports(self.chain) if port.host == host},
            )  # fmt: skip
            self.vnfs[host] = KINDS[one.kind](site, one.options)
        self._functions(stack, [vnf for vnf in self.vnfs.values() if not vnf.site.sockets])
        for of in known:
            self._routes(of)
        for host in self.chain.switches():
            self._switch(stack, host)
        # the switch connects to those that share memory with it
        self._functions(stack, [vnf for vnf in self.vnfs.values() if vnf.site.sockets])
        for switch in self.switches.values():
            switch.await_joined()
        for host, switch in self.switches.items():
            self._controller(stack, host, switch)
        self._tell = stack.enter_context(published(self.chain, network.namespace, self.notes))
        self.take(steering.choices(self.chain)[0])

    @staticmethod
    def _functions(stack: ExitStack, vnfs: Sequence[Vnf]) -> None:
        for vnf in vnfs:
            stack.callback(vnf.teardown)
            vnf.setup()
        for vnf in vnfs:
            vnf.await_ready()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """While captures are to see what passes shared memory."""
        shared = [one for one in self.switches.values() if layout.shared_ports(self.chain)]
        for one in shared:
            one.watch_shared(True)
        try:
            yield
        finally:
            for one in shared:
                if one.alive():
                    one.watch_shared(False)

    def program(self, rules: Iterable[Rule]) -> None:
        """Replace the flows of the switches by these."""
        ports, every = layout.rule_ports(self.chain), list(rules)

        def write(host: str) -> None:
            flows = [
                replace(one.flow, in_port=ports[one.flow.in_port], actions=renamed(one.flow.actions, ports))
                for one in every
                if one.switch == host
            ]
            self.written[host] = [*self.guards, *self._probes(host, ports), *flows]
            self.controllers[host].program(self.written[host])
            # a controller that connects may have it forward them
            self.switches[host].drop_fragments(any(one.match.port for one in self.chain.classes.values()))

        # each waits until packets meet its flows
        with ThreadPoolExecutor() as pool:
            list(pool.map(write, self.controllers))

    def _probes(self, host: str, ports: Mapping[str, str]) -> list[Flow]:
        return [
            replace(one, in_port=ports[one.in_port], actions=renamed(one.actions, ports))
            for one in steering.probe_flows(self.chain, host)
        ]

    def flow_packets(self) -> dict[int, int]:
        """Packets that matched each rule, by its number."""
        found: dict[int, int] = {}
        for host, one in self.switches.items():
            known = self.controllers[host].number
            found |= {known(cookie): packets for cookie, packets in one.flow_packets().items()}
        return found

    def foreign_flows(self) -> list[Listed]:
        """Flows of others that packets of the chain meet before its own rules."""
        return [
            found
            for host, one in self.switches.items()
            for found in foreign(
                one, self.written.get(host, ()), self.controllers[host].number, self.controllers[host].owns
            )
        ]

    def flow_cookies(self) -> list[int]:
        """Cookies of all flows of the switches, without those for probes of paths."""
        every = (
            self.controllers[host].number(cookie)
            for host, one in self.switches.items()
            for cookie in one.flow_cookies()
        )
        return sorted(one for one in every if one < steering.PROBES)

    def counters(self) -> dict[str, float]:
        """Of the ports of all switches."""
        found: dict[str, float] = {}
        for host, one in self.switches.items():
            prefix = "" if host == SWITCH else f"{host}."
            found |= {f"{prefix}{name}": value for name, value in one.counters().items()}
        return found

    def cpu(self) -> float:
        """CPU time of all switches, seconds."""
        return sum(one.cpu() for one in self.switches.values())

    def without(self, failed: frozenset[str]) -> None:
        """Have the switch do without these hosts of functions."""
        rules = steering.rules(self.chain, failed, self.by)
        self.program(rules)
        self.failed, self.rules = failed, rules

    def take(self, by: Mapping[str, str]) -> None:
        """Have classes take these lines between the switches."""
        rules = steering.rules(self.chain, self.failed, by)
        self.program(rules)
        self.by, self.rules = dict(by), rules
        self._tell(self.by)

    def _switch(self, stack: ExitStack, host: str) -> None:
        assert self.folder is not None
        chain, space = self.chain, self.network.namespace(host)
        names, hosts, shared = layout.switch_ports(chain), chain.hosts(), layout.shared_ports(chain)
        wiring = Wiring(
            tuple(layout.switch_ports(chain, host).values()),
            learning=False,
            sockets=self.folder if shared else None,
            shared=[names[one.name] for one in shared],
            memif=[names[one.name] for one in shared if chain.memif(hosts[one.host])],
        )
        place = DutSite(host, "", space, notes=self.notes, log=self.folder / f"{host}.log")
        made = DRIVERS[chain.switch](place, chain.options, wiring)
        stack.callback(made.teardown)
        made.setup()
        self.switches[host] = made
        for line in chain.lines():
            made.join(LineEnd.of(line, host))

    def _controller(self, stack: ExitStack, host: str, switch: Switch) -> None:
        assert self.folder is not None
        chosen = parse(self.chain.controller)
        folder = self.folder if host == SWITCH else self.folder / host
        folder.mkdir(mode=0o700, exist_ok=True)
        site = ControllerSite(switch, self.network.namespace(host), folder, self.notes)
        made = chosen.kind(site, chosen.count, chosen.options)
        stack.callback(made.teardown)
        made.setup()
        self.controllers[host] = made

    def _routes(self, known: layout.Addresses) -> None:
        """Of the ends; and addresses of neighbours, so that each class is seen by itself, and not through
        ARP, which is of the default class."""
        for host in (CLIENT, SERVER):
            if self.chain.lines():
                self.set_mtu(host, layout.host_mtu(self.chain))
            for to, by in known.routes[host].items():
                self._ip(host, "route", "replace", to, "via", by)
        stops = [CLIENT, *self.chain.routed(self.chain.chain), SERVER]
        for left, right in pairwise(stops):
            a, b = ("eth0" if left == CLIENT else "out"), ("eth0" if right == SERVER else "in")
            for host, interface, of, at in ((left, a, right, b), (right, b, left, a)):
                address = self._address(known, of, at)
                more = {CLIENT: known.more, SERVER: known.backends}.get(of, ())
                for one in (address, *more):
                    self._ip(host, "neigh", "replace", one, "lladdr", self.mac(of, at), "dev", interface,
                             "nud", "permanent")  # fmt: skip

    def set_mtu(self, host: str, size: int, interface: str = "eth0") -> None:
        """Largest packet that an interface sends, bytes; by default that of client or server."""
        self._ip(host, "link", "set", interface, "mtu", str(size))

    @staticmethod
    def _address(known: layout.Addresses, host: str, interface: str) -> str:
        if host in (CLIENT, SERVER):
            return known.client if host == CLIENT else known.server
        return (known.inside if interface == "in" else known.outside)[host].partition("/")[0]

    def mac(self, host: str, interface: str) -> str:
        """Ethernet address of an interface."""
        found: list[str] = []

        def read_links(ip: Any) -> None:
            (link,) = ip.get_links(ip.link_lookup(ifname=interface)[0])
            found.append(str(link.get_attr("IFLA_ADDRESS")))

        self.network.nodes[host].inside(read_links)  # type: ignore[attr-defined]
        return found[0]

    def _ip(self, host: str, *words: str) -> None:
        self.run(host, "ip", *words)

    def run(self, host: str, program: str, *words: str, text: str | None = None) -> None:
        """A short program on a host, `ip` or `nft`. Raises Error with its words when it fails."""
        command = [find(program, {"ip": "iproute2", "nft": "nftables"}[program]), *words]
        done = namespace.inside(
            self.network.namespace(host),
            lambda: subprocess.run(command, capture_output=True, text=True, check=False, input=text),
        )
        if done.returncode:
            raise Error("ND-92-26", f"{program} {' '.join(words)}: {done.stderr.strip()}", at=host)

    def dead(self) -> str:
        """What of it does not run any more, with its last words; empty: all does."""
        for switch in self.switches.values():
            if not switch.alive():
                return f"the switch {self.chain.switch}: {switch.death()}"
        for gateways in self.gateways.values():
            if why := gateways.dead():
                return why
        for controller in self.controllers.values():
            if why := controller.dead():
                return why
        for name, vnf in self.vnfs.items():
            if name not in self.failed and not vnf.alive():
                assert vnf.process is not None
                return f"the function {name} ({vnf.process.ending()}): {vnf.process.tail(3) or 'no log'}"
        return ""


@contextlib.contextmanager
def _of(name: str) -> Any:
    try:
        yield
    except Error as e:
        e.at = f"vnfs.{name}"
        raise
