"""What is wrong with a NAT's configuration whose keys are good one by one: above all what would leak."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from itertools import pairwise

from netdyno import units
from netdyno.errors import Error
from netdyno.nat import cores
from netdyno.nat.cores import REPLICATED, STAGES
from netdyno.nat.file import SUBSCRIBERS, CoreSet, File, Host, Port
from netdyno.nat.ports import CLIENT_PORTS, PER_BLOCK

POOL = 1 << 16
"""Most addresses of a pool."""
LEARNED = 7_440e9
"""How long a subscriber that is learned from what it sends may be silent, in ns (RFC 5382 REQ-5)."""
IDLE = ("udp", "icmp", "tcp_established", "tcp_opening", "tcp_closing")
"""Timeouts after which a session is over."""


def faults(file: File) -> Iterator[Error]:
    """What is wrong with a configuration whose keys are good one by one."""
    yield from _sides(file)
    yield from _hosts(file)
    yield from _addresses(file)
    yield from _untranslated(file)
    yield from _forwards(file)
    yield from _routes(file)
    yield from _filters(file)
    yield from _deterministic(file)
    yield from _lifetimes(file)
    yield from _pair(file)
    yield from _stages(file)


def _lifetimes(file: File) -> Iterator[Error]:
    """Who is only learned from what it sends is forgotten when it is silent, and all that it has with it."""
    if file.leases is not None:
        return
    lives = {f"timeouts.{key}": ("a session", value) for key, value in file.timeouts if key in IDLE}
    if file.pcp is not None:
        lives["pcp.lifetime.most"] = "a mapping", file.pcp.lifetime.most
    for at, (of, most) in lives.items():
        if most is not None and units.TIME.value(most, at) > LEARNED:
            what = f"{of} may live for {most}, a silent subscriber without a lease for 124min"
            fix = "Use 124min at most, or name the DHCP server's `leases`"
            yield Error("ND-104-07", what, at=at, fix=fix)


def _deterministic(file: File) -> Iterator[Error]:
    """Ports that follow from the subscriber's address need a block for each (RFC 7422)."""
    if file.deterministic is None or file.sites is not None:
        return
    at = "deterministic"
    if file.workers > 1:
        what = f"{file.workers} workers cannot divide ports that follow from the subscriber's address"
        yield Error("ND-104-07", what, at=at, fix="Use workers: 1, or leave it out")
    subscribers, per_block = IPv4Network(file.deterministic).num_addresses, file.ports.per_block or PER_BLOCK
    addresses = sum(IPv4Network(text).num_addresses for text in file.pool or ())
    if file.pool and subscribers > (blocks := addresses * (CLIENT_PORTS // per_block)):
        what = f"{subscribers:,} subscribers need as many port blocks, and the pool has {blocks:,}"
        fix = "Use a longer prefix, a larger pool, or fewer ports.per_block"
        yield Error("ND-104-07", what, at=at, fix=fix)


def _no_host(address: IPv4Address, network: IPv4Network) -> str | None:
    """Why nobody can have an address of a network."""
    if network.prefixlen >= 31 or address not in (network[0], network[-1]):
        return None
    kind = "network" if address == network[0] else "broadcast"
    return f"{address} is the {kind} address of {network}"


def _pair(file: File) -> Iterator[Error]:
    """What two NATs cannot share."""
    if file.pair is None:
        return
    for key, there, what in (
        ("sites", file.sites, "addresses of sites are those of one NAT's DHCP clients"),
        (
            "state",
            file.state,
            "the other NAT of a pair has the sessions, and a file would bring back old ones",
        ),
        ("inside.host", file.inside.host, "the kernel would answer for the box on both NATs of a pair"),
        ("outside.host", file.outside.host, "the kernel would answer for the box on both NATs of a pair"),
    ):
        if there is not None:
            yield Error("ND-104-07", what, at="pair", fix=f"Leave one of pair and {key} out")


def _sides(file: File) -> Iterator[Error]:
    inside, outside = IPv4Interface(file.inside.ip), IPv4Interface(file.outside.ip)
    gateway = IPv4Address(file.outside.gateway)
    if file.inside.device == file.outside.device and file.inside.device != "null":
        what, fix = "inside and outside are the same port", "Give each side a port of its own"
        yield Error("ND-104-07", what, at="outside.device", fix=fix)
    if inside.network.overlaps(outside.network):
        what = f"the networks of inside and outside overlap: {inside.network} and {outside.network}"
        yield Error("ND-104-07", what, at="outside.ip", fix="Give each side a network of its own")
    for key, one in (("inside.ip", inside), ("outside.ip", outside)):
        if why := _no_host(one.ip, one.network):
            yield Error("ND-104-07", why, at=key, fix="Use an address that a host can have")
    if gateway not in outside.network:
        what = f"{gateway} is not in {outside.network}, the network of outside.ip"
        fix = "Name the router there, or give outside.ip the prefix length of its network"
        yield Error("ND-104-07", what, at="outside.gateway", fix=fix)
    elif gateway == outside.ip:
        what = f"{gateway} is the box's own address"
        yield Error("ND-104-07", what, at="outside.gateway", fix="Name the router")
    elif why := _no_host(gateway, outside.network):
        yield Error("ND-104-07", why, at="outside.gateway", fix="Name the router")


def _hosts(file: File) -> Iterator[Error]:
    """The kernel's interfaces."""
    taken = {port.device.rpartition(":")[2]: key for key, port in _ports(file) if ":" in port.device}
    for key, port in _ports(file):
        if not isinstance(port.host, Host):
            continue
        if other := taken.get(port.host.interface):
            what = f"the interface {port.host.interface} is that of {other}"
            fix = "Choose a name of its own: the NAT makes the interface"
            yield Error("ND-104-07", what, at=f"{key}.host", fix=fix)
        taken[port.host.interface] = f"{key}.host"


def _ports(file: File) -> tuple[tuple[str, Port], ...]:
    return ("inside", file.inside), ("outside", file.outside)


def _addresses(file: File) -> Iterator[Error]:
    """A pool, or sites; one of both."""
    if file.pool is not None:
        yield from _pool(file, file.pool)
    if file.sites is None:
        if file.pool is None:
            what = "there is neither a pool nor a site: no subscriber gets an outside address"
            yield Error("ND-104-07", what, at="pool", fix="Add a pool, or sites with addresses by DHCP")
        return
    if file.pool is not None:
        what = "there is a pool, and sites with addresses by DHCP in its place"
        yield Error("ND-104-07", what, at="sites", fix="Use one of both")
    if file.state is not None:
        what = "sites get new addresses after a restart, so no session can survive it"
        yield Error("ND-104-07", what, at="state", fix="Use sites or state")
    if file.sites.by == "prefix" and file.sites.prefix is None:
        what = "sites are prefixes, and their length is not said"
        yield Error("ND-104-07", what, at="sites.prefix", fix="Add a length like prefix: 29")
    if file.sites.by != "prefix" and file.sites.prefix is not None:
        what = "there is a prefix length, and sites are no prefixes"
        yield Error("ND-104-07", what, at="sites.prefix", fix="Leave it out, or use by: prefix")
    if file.steering == "rss":
        what = "several workers divide sites by what tells one from another, not by addresses"
        yield Error("ND-104-07", what, at="steering", fix="Leave it out, or use a pool")
    for key in ("forwards", "deterministic"):
        if getattr(file, key):
            what = f"{key} needs addresses that stay, and those of sites come by DHCP"
            yield Error("ND-104-07", what, at=key, fix="Leave it out, or use a pool")


def _pool(file: File, addresses: list[str]) -> Iterator[Error]:
    inside, outside = IPv4Interface(file.inside.ip), IPv4Interface(file.outside.ip)
    own = {
        inside.ip: "inside.ip",
        outside.ip: "outside.ip",
        IPv4Address(file.outside.gateway): "outside.gateway",
    }
    subscribers = [(text, IPv4Network(text)) for text in file.subscribers or SUBSCRIBERS]
    pool = [IPv4Network(text) for text in addresses]
    if (size := sum(one.num_addresses for one in pool)) > POOL:
        what = f"{size:,} addresses are more than a pool can have"
        yield Error("ND-104-05", what, at="pool", fix=f"Use at most {POOL:,}")
    spans = sorted((one.network_address, one.broadcast_address, i) for i, one in enumerate(pool))
    for (_, last, i), (first, _, j) in pairwise(spans):
        if first <= last:
            what = f"{pool[i]} and {pool[j]} overlap"
            yield Error("ND-104-07", what, at=f"pool[{max(i, j)}]", fix="Name each address once")
    for i, (text, prefix) in enumerate(zip(addresses, pool, strict=True)):
        at = f"pool[{i}]"
        if prefix.is_multicast or prefix.is_loopback or prefix.is_reserved or not int(prefix.network_address):
            what = f"{text} is no address that a host can have"
            yield Error("ND-104-05", what, at=at, fix="Use addresses that are routed to this NAT")
            continue
        for address, key in own.items():
            if address in prefix:
                what = f"{text} holds {address}, which is {key}"
                yield Error("ND-104-07", what, at=at, fix="Leave that address out of the pool")
        for address in (outside.network[0], outside.network[-1]):
            if address in prefix and (why := _no_host(address, outside.network)):
                fix = "Leave that address out of the pool: the router answers nobody who has it"
                yield Error("ND-104-07", f"{text}: {why}", at=at, fix=fix)
        theirs = next((said for said, one in subscribers if one.overlaps(prefix)), None)
        if theirs is not None:
            what = f"{text} overlaps the subscribers' {theirs}: translated packets would come back in"
            fix = "Use addresses that are routed to this NAT; `subscribers` says who is inside"
            yield Error("ND-104-07", what, at=at, fix=fix)
        elif prefix.overlaps(inside.network):
            what = f"{text} overlaps {inside.network}, the network of inside.ip"
            yield Error("ND-104-07", what, at=at, fix="Use addresses that are routed to this NAT")


def _untranslated(file: File) -> Iterator[Error]:
    """What goes to these destinations keeps its private source."""
    pool = [(text, IPv4Network(text)) for text in file.pool or ()]
    for i, text in enumerate(file.exempt or ()):
        at, network = f"exempt[{i}]", IPv4Network(text)
        if network.prefixlen == 0:
            fix = "Name the networks that know subscribers by their own addresses"
            yield Error("ND-104-07", f"{text} exempts everything: nothing is translated", at=at, fix=fix)
        elif shared := next((said for said, one in pool if one.overlaps(network)), None):
            what = f"{text} overlaps the pool's {shared}: who sends there from inside shows a private address"
            fix = "Leave it out: subscribers reach each other by outside addresses anyway"
            yield Error("ND-104-07", what, at=at, fix=fix)


def _forwards(file: File) -> Iterator[Error]:
    """A forward leads to a subscriber."""
    subscribers = [IPv4Network(text) for text in file.subscribers or SUBSCRIBERS]
    for i, one in enumerate(file.forwards or ()):
        address = IPv4Address(one.inside.rpartition(":")[0])
        if not any(address in prefix for prefix in subscribers):
            what = f"{address} is no subscriber"
            fix = "Name a subscriber; `subscribers` says who is one"
            yield Error("ND-104-07", what, at=f"forwards[{i}].inside", fix=fix)


def _routes(file: File) -> Iterator[Error]:
    """Networks behind routers inside."""
    inside, outside = IPv4Interface(file.inside.ip), IPv4Interface(file.outside.ip)
    subscribers = [IPv4Network(text) for text in file.subscribers or SUBSCRIBERS]
    if file.inside.routes and file.leases is not None:
        what = "a lease names the subscriber's own MAC address, and behind a router it has the router's"
        yield Error("ND-104-07", what, at="inside.routes", fix="Leave one of inside.routes and leases out")
    seen: set[IPv4Network] = set()
    for i, route in enumerate(file.inside.routes or ()):
        at, to, via = f"inside.routes[{i}]", IPv4Network(route.to, strict=False), IPv4Address(route.via)
        if via not in inside.network:
            what = f"{via} is not in {inside.network}, the network of inside.ip"
            yield Error("ND-104-07", what, at=f"{at}.via", fix="Name a router that is on the inside link")
        elif via == inside.ip:
            what = f"{via} is the box's own address"
            yield Error("ND-104-07", what, at=f"{at}.via", fix="Name the router that leads there")
        elif why := _no_host(via, inside.network):
            yield Error("ND-104-07", why, at=f"{at}.via", fix="Name the router that leads there")
        for key, network in (("inside.ip", inside.network), ("outside.ip", outside.network)):
            if to.overlaps(network):
                what = f"{to} overlaps {network}, the network of {key}, which is on the link"
                yield Error("ND-104-07", what, at=f"{at}.to", fix="Name a network behind the router")
        if not any(to.overlaps(prefix) for prefix in subscribers):
            what, fix = f"there is no subscriber in {to}", "Name their network; `subscribers` says who is one"
            yield Error("ND-104-07", what, at=f"{at}.to", fix=fix)
        if to in seen:
            yield Error("ND-104-07", f"{to} is there twice", at=f"{at}.to", fix="Name each network once")
        seen.add(to)


def _filters(file: File) -> Iterator[Error]:
    """What is dropped, and what is outside."""
    inside = IPv4Interface(file.inside.ip)
    subscribers = [IPv4Network(text) for text in file.subscribers or SUBSCRIBERS]
    for i, text in enumerate(file.outside_prefixes or ()):
        at, network = f"outside_prefixes[{i}]", IPv4Network(text)
        if network.overlaps(inside.network):
            what = f"{text} overlaps {inside.network}, the network of inside.ip"
            yield Error("ND-104-07", what, at=at, fix="Name networks that the outside port leads to")
        elif not any(network.overlaps(prefix) for prefix in subscribers):
            what = f"{text} is not in the subscribers' space, so it is outside anyway"
            yield Error("ND-104-07", what, at=at, fix="Leave it out")
    for i, rule in enumerate(file.acl or ()):
        if rule.ports is not None and rule.protocol == "icmp":
            fix = "Leave ports out, or name tcp or udp"
            yield Error("ND-104-07", "ICMP has no ports", at=f"acl[{i}].ports", fix=fix)


def _stages(file: File) -> Iterator[Error]:
    if isinstance(file.execution, CoreSet):
        stages = file.execution.model_dump()
    elif file.execution in cores.named() and file.workers > 1:
        what = f"the core set {file.execution} is for 1 worker, and there are {file.workers}"
        fix = "Use workers: 1, or a core for each stage with lists for nat and conntrack"
        yield Error("ND-104-07", what, at="workers", fix=fix)
        return
    else:
        return
    for stage in STAGES:
        count = file.workers if stage in REPLICATED else 1
        if len(stages[stage]) != count:
            listed = f"{len(stages[stage])} {'core' if len(stages[stage]) == 1 else 'cores'}"
            what = f"{stage} has {listed}, and there is 1 of it"
            fix = "Name one core"
            if stage in REPLICATED:
                what = f"{stage} has {listed}, and there are {count} workers"
                fix = f"Name {count}, or use workers: {len(stages[stage])}"
            yield Error("ND-104-07", what, at=f"execution.{stage}", fix=fix)
