"""The file of a NAT's configuration, `netdyno-nat/1`: its keys, and what each may be."""

from __future__ import annotations

import difflib
import re
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WrapValidator, field_validator

from netdyno import units
from netdyno.config import NULL, Config
from netdyno.errors import Error
from netdyno.nat import cores
from netdyno.nat.cores import CoreLocation
from netdyno.nat.host import RATE
from netdyno.system.namespace import is_interface

FORMAT = "netdyno-nat/1"
RUN_TO_COMPLETION, PIPELINE = "run-to-completion", "pipeline"
SUBSCRIBERS = ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16")
"""Who is a subscriber unless it is said: the addresses of RFC 1918 and RFC 6598."""
WORKERS = 32

Whole = Annotated[int, Field(strict=True)]


# ---- texts


def _interface(text: str) -> str:
    if ":" in text:
        raise ValueError("NAT64 is not there: use an IPv4 address")
    if not re.fullmatch(r"[0-9.]+/[0-9]{1,2}", text):
        raise ValueError("write an IPv4 address with the prefix length of its network, like 10.0.0.254/24")
    IPv4Interface(text)
    return text


def _network(text: Any) -> str:
    if not isinstance(text, str):
        raise ValueError("write an IPv4 prefix like 203.0.113.16/28")
    if ":" in text:
        raise ValueError("NAT64 is not there: use an IPv4 prefix")
    if not re.fullmatch(r"[0-9.]+(/[0-9]{1,2})?", text):
        raise ValueError("write an IPv4 prefix like 203.0.113.16/28, or an address")
    whole = IPv4Network(text, strict=False)
    if str(whole.network_address) != text.partition("/")[0]:
        raise ValueError(f"the prefix begins at {whole}")
    return text


def _endpoint(text: str) -> str:
    address, _, port = text.rpartition(":")
    if not re.fullmatch(r"[0-9.]+", address) or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError("write an IPv4 address and a port, like 203.0.113.16:443")
    IPv4Address(address)
    return text


def _address(text: str) -> str:
    if not re.fullmatch(r"[0-9.]+", text):
        raise ValueError("write an IPv4 address like 203.0.113.1")
    IPv4Address(text)
    return text


def _ports(value: Any, _: Any) -> str:
    """A port or a range of ports; a plain number in YAML is one."""
    text = str(value) if type(value) is int else value
    found = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", text) if isinstance(text, str) else None
    if found is None or not int(found[1]) <= int(found[2] or found[1]) < 1 << 16:
        raise ValueError("write a port like 25, or a range like 6881-6889")
    return str(text)


def _time(text: str) -> str:
    try:
        read = units.TIME.text(text, "")
    except Error:
        known = ", ".join(units.TIME.units)
        raise ValueError(f"{text!r} is not {units.TIME.what}: units are {known}") from None
    if text.strip()[-1].isdigit():
        raise ValueError(f"it has no unit: write it like {units.TIME.example}")
    return read


def _cores(value: Any, _: Any) -> list[str]:
    """One core, or one for each worker."""
    listed = value if isinstance(value, list) else [value]
    if not listed or not all(isinstance(one, str) for one in listed):
        raise ValueError("write a core like s0c1, or a list of them, one for each worker")
    for one in listed:
        CoreLocation.of(one)
    return listed


def _vlan(value: Any, _: Any) -> list[int]:
    listed = value if isinstance(value, list) else [value]
    if not all(type(one) is int and 1 <= one <= 4094 for one in listed) or not 1 <= len(listed) <= 2:
        raise ValueError("write a VLAN from 1 to 4094, or two of them for QinQ, the service VLAN first")
    return listed


def _host(value: Any, _: Any) -> Host:
    """A name, or more than that; what is wrong is told of that alone."""
    return Host.model_validate({"interface": value} if isinstance(value, str) else value)


def _execution(value: Any, _: Any) -> Any:
    """A word, or a core set; which of them is wrong is told of that one alone."""
    if isinstance(value, dict):
        return CoreSet.model_validate(value)
    known = words()
    if not isinstance(value, str) or value not in known:
        near = difflib.get_close_matches(str(value), known, 1)
        meant = f"did you mean {near[0]!r}?" if near else f"use {', '.join(known)}, or a core for each stage"
        raise ValueError(f"it is no execution model and no core set; {meant}")
    return value


def words() -> list[str]:
    """Execution models and core sets that have a name."""
    return [RUN_TO_COMPLETION, PIPELINE, *cores.named()]


def _choices(schema: dict[str, Any]) -> None:
    """What an editor offers in place of any text."""
    for option in schema.get("anyOf", ()):
        if option.get("type") == "string":
            option["enum"] = words()


# ---- the file


Cores = Annotated[str | list[str], WrapValidator(_cores)]
Time = Annotated[str, AfterValidator(_time)]


class Section(Config):
    """A part of the file, in which no key may be left empty."""

    @field_validator("*", mode="before")
    @classmethod
    def _not_empty(cls, value: Any) -> Any:
        if value is None:
            raise ValueError("it is empty: write what it is to be, `{}` for defaults, or leave the key out")
        return value


class Host(Section):
    """An interface of the host's kernel, by which it gets what is addressed to the box."""

    interface: str
    """Its name, up to 15 characters. It appears with the NAT, with the port's MAC address and `ip`, and goes
    with it."""
    rate: str = RATE
    """Packets in a second that go to the kernel, and so many from it. ARP has as much for itself. More than
    that are dropped."""
    driver: Literal["auto", "tap", "virtio"] = "auto"
    """How it is made: `tap`, or `virtio` (virtio-user over `/dev/vhost-net`). `auto`: virtio where there is
    such a device."""

    @field_validator("interface")
    @classmethod
    def _interface(cls, value: str) -> str:
        if not is_interface(value):
            raise ValueError("it cannot name an interface: use up to 15 letters, digits, `-`, `_` and `.`")
        return value

    @field_validator("rate")
    @classmethod
    def _rate(cls, value: str) -> str:
        try:
            rate = units.RATE.value(value, "rate")
        except Error:
            raise ValueError(f"it is not {units.RATE.what}: write it like 10k/s") from None
        if rate < 1:
            raise ValueError("it is less than 1/s")
        return units.RATE.text(value, "rate").replace("_", "")


class Port(Section):
    """A port of the NAT: a DPDK port, as in the graph of `netdyno graph run`."""

    device: str = Field(min_length=1)
    """A NIC's PCI address like `0000:83:00.0`, or any other DPDK port (docs/howto/dpdk.md)."""
    ip: str
    """The box's own IPv4 address there, with the prefix length of its network, like `10.0.0.254/24`."""
    vlan: Annotated[int | list[int], WrapValidator(_vlan)] | None = None
    """The VLAN in which the box answers for its address, or two of them for QinQ. Default: any."""
    mac: str | None = Field(default=None, pattern=r"^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$")
    """The port's MAC address. Default: the device's own."""
    queues: Annotated[Whole, Field(ge=1, le=16)] | None = None
    """Queues each way; with more than one the port has to spread flows over them (RSS). Default: 1; of a NIC
    one for each worker that runs to completion."""
    burst: Annotated[Whole, Field(ge=1, le=128)] | None = None
    """Packets that are received or sent at once. Default: 128."""
    mtu: Annotated[Whole, Field(ge=576, le=9_600)] | None = None
    """The largest IP packet that the link takes, in bytes. Longer ones are sent in fragments, or, with DF,
    reported to their sender (RFC 1191). Above 1500 the device must offer it, and packets take as much memory.
    Default: the device's, at most 1500."""
    host: Annotated[str | Host | None, WrapValidator(_host)] = None
    """The interface of the host's kernel, by name like `nat-in`, that gets what is addressed to the box: SSH,
    BGP, DHCP. Default: none; the box answers ARP and echo, and nothing else."""

    _ip = field_validator("ip")(_interface)

    @field_validator("device", mode="before")
    @classmethod
    def _device(cls, value: Any) -> Any:
        if value is None:
            raise ValueError(f"it has no device. {NULL}")
        return value


class Route(Section):
    """A network of subscribers behind a router."""

    to: str
    """The network, a prefix like `100.64.0.0/16`."""
    via: str
    """The router, an address in the network of `inside.ip`. It is asked for by ARP, in the VLAN of the
    subscriber."""

    _to = field_validator("to")(_network)
    _via = field_validator("via")(_address)


class Inside(Port):
    """The port towards subscribers."""

    routes: list[Route] | None = Field(default=None, max_length=1024)
    """Networks of subscribers behind routers inside: by which next hop a subscriber there is reached before
    it has sent anything. The longest prefix decides. Default: none."""


class Outside(Port):
    """The port away from subscribers."""

    gateway: str
    """The router that everything goes to; it is in the network of `ip`."""

    _gateway = field_validator("gateway")(_address)


class Sites(Section):
    """Sites of subscribers, each with a public address of its own by DHCP, at a virtual MAC address."""

    most: Annotated[Whole, Field(ge=1, le=65_534)]
    """Sites that may have an address at a time, 1 to 65,534."""
    by: Literal["vlan", "subscriber", "prefix"]
    """What a site is: `vlan`, all with the same VLAN tags; `subscriber`, each by itself; `prefix`, all of a
    prefix with the same tags."""
    prefix: Annotated[Whole, Field(ge=1, le=32)] | None = None
    """The length of these prefixes, with `by: prefix`."""
    macs: str | None = Field(default=None, pattern=r"^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$")
    """The virtual MAC address of the first site; each further one has the next. No other NAT of the outside
    segment may have these. Default 02:4e:44:00:00:00."""
    known: str | None = Field(default=None, pattern="^/")
    """A file, from the root on, in which addresses are kept: after a restart each site asks for its own.
    Default: none."""
    release_after: Time | None = None
    """An address is given back so long after the site's last subscriber is gone. Default 5min."""
    least_lease: Time | None = None
    """Leases that are shorter are refused. Default 60s."""


class PortBlocks(Section):
    """How ports are given to subscribers: in blocks."""

    per_block: Annotated[Whole, Field(ge=64, le=16_384)] | None = None
    """Ports of a block: a power of two from 64 to 16,384. Default 512."""
    blocks_per_subscriber: Annotated[Whole, Field(ge=1, le=8)] | None = None
    """Blocks that a subscriber may have at a time, 1 to 8. Default 4."""

    @field_validator("per_block")
    @classmethod
    def _power(cls, value: int | None) -> int | None:
        if value is not None and value & (value - 1):
            raise ValueError("it is no power of two; use 64, 128, 256 … 16,384")
        return value


class Limits(Section):
    """What there may be at a time. Tables are made so large at the start; what exceeds them is refused."""

    sessions: Annotated[Whole, Field(ge=1, le=1 << 30)] | None = None
    """Sessions of all subscribers; at most 112 bytes of memory each. Default 1048576."""
    subscribers: Annotated[Whole, Field(ge=1, le=1 << 28)] | None = None
    """Subscribers. Default 16384."""
    sessions_per_subscriber: Annotated[Whole, Field(ge=1, le=(1 << 32) - 1)] | None = None
    """Sessions of one subscriber (RFC 6888 REQ-5). Default 8192."""


class Filtering(Section):
    """Who may answer to a mapping (RFC 4787 section 5)."""

    udp: Literal["endpoint_independent", "address_and_port_dependent"] | None = None
    """`endpoint_independent`: everybody; `address_and_port_dependent`: whom the subscriber sent to, from the
    port it sent to. Default endpoint_independent."""
    tcp: Literal["endpoint_independent", "address_and_port_dependent"] | None = None
    """The same of TCP (RFC 5382 REQ-3). Default address_and_port_dependent."""


class Forward(Section):
    """An outside endpoint that always leads to an inside one."""

    protocol: Literal["tcp", "udp"]
    """Of which protocol."""
    outside: str
    """An address of the pool and a port, like `203.0.113.16:443`."""
    inside: str
    """The subscriber's address and port, like `10.0.0.7:8443`."""
    vlan: Annotated[int | list[int], WrapValidator(_vlan)] | None = None
    """The subscriber's VLAN, or two of them for QinQ. Default: none."""

    _ends = field_validator("outside", "inside")(_endpoint)


class Rule(Section):
    """A rule for packets that begin something."""

    action: Literal["permit", "deny"]
    """What becomes of a packet that the rule matches. What is denied is dropped as `acl`, and a subscriber is
    told (ICMP type 3 code 13)."""
    from_: Literal["inside", "outside"] | None = Field(default=None, alias="from")
    """The port that it comes in by. Default: either."""
    protocol: Literal["tcp", "udp", "icmp"] | None = None
    """What it carries; `icmp` are queries. Default: anything."""
    source: str | None = None
    """Its source as it comes, an address or a prefix. Default: any."""
    destination: str | None = None
    """Its destination as it comes: from outside an address of the pool. Default: any."""
    ports: Annotated[str | int | None, WrapValidator(_ports)] = None
    """Its destination ports of TCP and UDP, like `25` or `6881-6889`. Default: any."""

    @field_validator("source", "destination")
    @classmethod
    def _prefix(cls, value: str | None) -> str | None:
        return None if value is None else _network(value)


class Leases(Section):
    """The DHCP server that subscribers have their addresses from: who has no lease gets no further."""

    file: str = Field(pattern="^/")
    """Its lease file, from the root on, like `/var/lib/kea/kea-leases4.csv`."""
    server: Literal["kea", "isc"]
    """Who writes it: Kea's memfile, or ISC's `dhcpd.leases`."""
    vlan: Annotated[int | list[int], WrapValidator(_vlan)] | None = None
    """The VLAN of its clients, or two of them for QinQ. Default: none."""


class Timeouts(Section):
    """Idle times after which sessions are over, with their unit; each default is what its RFC says. Without
    `leases` 124min at most: a subscriber that is silent for longer is forgotten, and its sessions end."""

    udp: Time | None = None
    """UDP. Default 5min (RFC 4787 REQ-5); 2min at least."""
    icmp: Time | None = None
    """ICMP queries. Default 60s (RFC 5508 REQ-2), which is the least."""
    tcp_established: Time | None = None
    """Open TCP connections. Default 124min (RFC 5382 REQ-5), which is the least."""
    tcp_opening: Time | None = None
    """TCP connections that are being opened. Default 4min (RFC 5382 REQ-5)."""
    tcp_closing: Time | None = None
    """TCP connections that were closed or reset. Default 4min (RFC 5382 REQ-5), which is the least."""
    port_quarantine: Time | None = None
    """Between a port's last use and its next. Default 2min (RFC 6888 REQ-8)."""


class Log(Section):
    """Where port blocks and sessions are logged (RFC 6888 section 4)."""

    ipfix: str | None = None
    """The IPFIX collector (RFC 7011, RFC 8158): address and port, like `192.0.2.9:4739`; `tcp://` before it
    for TCP."""
    syslog: str | None = None
    """The syslog collector (RFC 5424): address and port, like `192.0.2.9:514`; `tcp://` before it for TCP."""
    sessions: Annotated[bool, Field(strict=True)] | None = None
    """Log each session with its remote endpoint, and not port blocks only. Default false."""
    instance: Annotated[Whole, Field(ge=0, lt=1 << 32)] | None = None
    """The number of this NAT in each record. Default 1."""
    host: str | None = None
    """The name of this host in syslog messages. Default: none."""
    domain: Annotated[Whole, Field(ge=0, lt=1 << 32)] | None = None
    """The IPFIX observation domain of the first worker; each further one has the next. Default 1."""
    facility: Annotated[Whole, Field(ge=0, le=23)] | None = None
    """The syslog facility; 16 is local0. Default 16."""
    enterprise: Annotated[Whole, Field(ge=1, lt=1 << 32)] | None = None
    """Your private enterprise number (IANA), in the structured data of syslog. Default 32473, that of
    documentation (RFC 5612)."""


class Lifetimes(Section):
    """How long a mapping lives that a subscriber asks for, before it must be asked for again."""

    least: Time | None = None
    """The shortest, with its unit; 1s at least. Default 2min."""
    most: Time | None = None
    """The longest, with its unit; 24h at most. Without `leases` 124min at most: a subscriber that is silent
    for longer is forgotten. Default 2h."""


class Pcp(Section):
    """Subscribers may ask for mappings by PCP (RFC 6887), at the address `inside.ip`."""

    mappings_per_subscriber: Annotated[Whole, Field(ge=1, le=4096)] | None = None
    """Mappings that a subscriber may have by it, 1 to 4096. Default 32."""
    lifetime: Lifetimes = Field(default_factory=Lifetimes)
    """How long a mapping lives before it must be asked for again."""


class Pair(Section):
    """Another NAT of this machine that knows the sessions of this one, and takes over."""

    socket: str = Field(pattern="^/", max_length=96)
    """The socket, from the root on, by which the two find each other, like `/run/netdyno/cgn.pair`; its
    folder has to be there. Both NATs name the same."""
    silence: Time | None = None
    """The standby takes over when the active NAT is silent for so long, 150ms to 60s; at once when its
    process dies. Default 300ms."""


class CoreSet(Section):
    """The core of each stage: `s0c1h` is NUMA socket 0, physical core 1 on it, its second hyper-thread."""

    rx: Cores
    """Receives from both ports."""
    validity: Cores
    """Finds headers, and drops what is broken."""
    nat: Cores
    """Knows subscribers. With several workers a list, one for each."""
    conntrack: Cores
    """Has sessions and ports, and rewrites headers. With several workers a list, one for each."""
    tx: Cores
    """Sends, and answers for the box itself."""


class File(Section):
    """A carrier-grade NAT between two ports."""

    schema_: str | None = Field(default=None, alias="$schema")
    """Where this format's schema is; for editors, not read."""
    format: Literal["netdyno-nat/1"]
    """Which format this is."""
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$")
    """A short name: letters, digits, `-`, `_`. `netdyno nat status NAME` finds it by that."""
    inside: Inside
    """The port towards subscribers; its address is their gateway."""
    outside: Outside
    """The port away from them."""
    subscribers: list[str] | None = Field(default=None, min_length=1, max_length=1024)
    """Who is a subscriber: prefixes. Whoever else sends from the inside is not translated. Default: the
    addresses of RFC 1918 and RFC 6598."""
    pool: list[str] | None = Field(default=None, min_length=1, max_length=65_536)
    """Outside addresses that subscribers share, or prefixes of them; at most 65,536 addresses. The outside
    port answers ARP for them. Either this or `sites`."""
    sites: Sites | None = None
    """In place of a pool: each site of subscribers has a public address of its own by DHCP, at a virtual MAC
    address. Several workers divide the sites."""
    ports: PortBlocks = Field(default_factory=PortBlocks)
    """How ports are given to subscribers."""
    limits: Limits = Field(default_factory=Limits)
    """What there may be at a time."""
    filtering: Filtering = Field(default_factory=Filtering)
    """Who may answer to a mapping."""
    timeouts: Timeouts = Field(default_factory=Timeouts)
    """Idle times after which sessions are over."""
    forwards: list[Forward] | None = None
    """Outside endpoints that always lead to inside ones."""
    exempt: list[str] | None = None
    """Destinations, as prefixes, that are forwarded untranslated (RFC 6888 REQ-6). Subscribers with one
    address in several VLANs cannot both speak to them."""
    outside_prefixes: list[str] | None = Field(default=None, max_length=1024)
    """Prefixes in the subscribers' space that are outside all the same: subscribers reach them, translated,
    and packets from there come in. The network of `outside.ip` is one anyway. Default: none; what goes to
    subscribers' addresses, and what comes from there by the outside port, is dropped (RFC 2827)."""
    reverse_path: Literal["loose", "strict"] = "loose"
    """Whose packets are taken from inside (RFC 3704): `loose`, those of any subscriber; `strict`, those of
    the network of `inside.ip` and of `inside.routes`; others are dropped as `reverse_path`."""
    ip_options: Literal["no_source_route", "none", "any"] = "no_source_route"
    """Packets with which IP options are forwarded (RFC 7126): any but source routes, none, or any."""
    acl: list[Rule] | None = Field(default=None, max_length=1024)
    """Rules for packets that begin a session, or go untranslated, in order: the first that a packet matches
    decides; one that matches none is permitted. Sessions that are there go on."""
    deterministic: str | None = None
    """A prefix of subscribers whose outside address and ports follow from their own address alone (RFC 7422).
    With one worker only."""
    leases: Leases | None = None
    """The DHCP server that subscribers have their addresses from. Default: whoever sends from an inside
    prefix is one."""
    log: Log | None = None
    """Where port blocks and sessions are logged. Default: nowhere."""
    pcp: Pcp | None = None
    """Let subscribers ask for mappings by PCP (RFC 6887): `{}` for the defaults. Default: they cannot."""
    mss: Annotated[Whole, Field(ge=536, le=65_495)] | None = None
    """The largest TCP segment that a SYN may ask for, for paths with a smaller MTU than subscribers' links.
    Default: as it asks."""
    state: str | None = Field(default=None, pattern="^/")
    """A file, from the root on, in which sessions and port blocks are kept over a restart, like
    `/var/lib/netdyno/cgn.state`: it is written when the NAT ends, and read when it begins. Default: they end
    with it."""
    pair: Pair | None = None
    """Another NAT of this machine that knows all sessions and takes over when this one ends, dies or hangs:
    who starts first translates, the other is the standby. Default: none."""
    execution: Annotated[str | CoreSet, WrapValidator(_execution)] = Field(
        default=RUN_TO_COMPLETION, json_schema_extra=_choices
    )
    """`run-to-completion`: everything of a worker on one core. `pipeline`: the stages RX, validity, NAT,
    ConnTrack and TX on as many cores as there are. Or the name of a core set like `core-set-1`, or a core for
    each stage."""
    workers: Annotated[Whole, Field(ge=1, le=WORKERS)] = 1
    """How often NAT and ConnTrack are there. Each has its own subscribers, ports and sessions."""
    steering: Literal["rss", "hash"] | None = None
    """How several workers divide subscribers: `rss`, by address, as RSS of NICs then steers packets: few are
    handed from worker to worker; `hash`, by a keyed hash of address and VLAN tags, for VLANs that all have
    the same few addresses. Default: `rss` where the inside port has several queues, but not with `sites`."""
    memory: str | None = None
    """Memory for packets, with its unit; that for sessions comes on top. Default 256MiB."""
    huge_pages: Annotated[bool, Field(strict=True)] | None = None
    """Use huge pages, which NICs usually need. Default false."""

    @field_validator("deterministic")
    @classmethod
    def _prefix(cls, value: str | None) -> str | None:
        return None if value is None else _network(value)

    @field_validator("subscribers", "pool", "exempt", "outside_prefixes")
    @classmethod
    def _prefixes(cls, value: list[str] | None) -> list[str] | None:
        for text in value or ():
            try:
                _network(text)
            except ValueError as e:
                raise ValueError(f"{text}: {e}") from None
        return value

    @field_validator("memory")
    @classmethod
    def _memory(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            read = units.SIZE.text(value, "memory")
        except Error:
            known = ", ".join(units.SIZE.units)
            raise ValueError(f"it is not {units.SIZE.what}: units are {known}") from None
        if value.strip()[-1].isdigit():
            raise ValueError("it has no unit: write it like 1GiB")
        return read.replace("_", "")
