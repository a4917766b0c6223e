"""`hosts.yaml`: the hosts of a fleet as people write them; each fault is told with its line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, field_validator, model_validator

from netdyno import config, reading
from netdyno.config import Config
from netdyno.errors import Error

FORMAT = "netdyno-fleet/1"
NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$"
"""It is in the names of sockets and files."""
MOST_HOSTS = 10_000
PER_RELAY = 250
"""Each has a connection, and its samples are added up by one process."""
CERTIFICATES = "certificates"
"""The folder of certificates beside hosts.yaml, where it names no other."""
_ADDRESS = r"^[A-Za-z0-9_][A-Za-z0-9_.@:%-]{0,254}$"
"""Of an SSH host: no option, and nothing that a shell reads."""
_CLUSTER = r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,252}|\[[0-9A-Fa-f:]{2,45}\]):[0-9]{1,5}$"
"""Of Ray: of one that runs, where other words would start a new one."""
WRONG = "ND-104-91"


_ONLY = {
    "namespace": ("local",),
    "address": ("ssh", "address"),
    "port": ("ssh", "address", "ray"),
    "cluster": ("ray",),
    "key": ("ssh",),
    "known_hosts": ("ssh",),
    "program": ("ssh",),
    "mtls": ("ssh",),
    "certificates": ("address",),
}
"""Keys that are not for every launcher."""


class HostPort(Config):
    """A DPDK port of a host, in the place of the one of this name in a profile."""

    name: str = Field(default="a", pattern=r"^[A-Za-z0-9_-]{1,32}$")
    """Its name in profiles."""
    device: str = Field(min_length=1, max_length=256)
    """As in a profile: a PCI address, or `af_packet:veth0`."""
    ip: str | list[str] | None = None
    """Its own address, with the length of its network: `10.0.0.1/24`."""
    gateway: str | list[str] | None = None
    """The router to other networks; default none."""
    mac: str | None = None
    """Default: the device's own."""
    peer_mac: str | None = None
    """Where frames are sent; default: asked for."""
    vlan: int | list[int] | None = None
    """The VLAN of the port; default none."""

    def settings(self) -> dict[str, Any]:
        """What it says, as a profile has it."""
        return self.model_dump(exclude_none=True)


class HostSpec(Config):
    """One host: where its agent runs, and how much of the load it takes."""

    name: str = Field(pattern=NAME)
    """A short name, for results and messages: letters, digits, `-`, `_`."""
    launcher: Literal["local", "ssh", "address", "ray"] = "local"
    """`local`: a process on this machine. `ssh`: a process on another machine, over the OpenSSH client.
    `address`: an agent that runs already, reached by mutual TLS. `ray`: an actor of a Ray cluster."""
    namespace: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")
    """local: the network namespace that the agent sends from; default this machine's own."""
    address: str | None = Field(default=None, pattern=_ADDRESS)
    """ssh: `HOST` or `USER@HOST`, or a name of the SSH configuration. address: a name or an address.
    Default: `name`."""
    port: int | None = Field(default=None, ge=1, le=65_535)
    """ssh: the server's port; default that of the SSH configuration. address: the agent's; default 7448.
    ray: the agent's; default any free one."""
    key: str | None = None
    """ssh: file of the private key; default those of the SSH configuration. Relative to hosts.yaml."""
    known_hosts: str | None = None
    """ssh: file with the host's public key; default that of the SSH configuration. Relative to hosts.yaml."""
    program: str | None = Field(default=None, pattern=r"^/[A-Za-z0-9_./+-]{1,254}$")
    """ssh: path of a `netdynod` on the host; default: this machine's is copied there."""
    mtls: int | None = Field(default=None, ge=0, le=65_535)
    """ssh: the agent serves mutual TLS on this port, 0: any free one. Default: a socket that SSH forwards."""
    certificates: str | None = None
    """address: folder with `ca.pem`, `client.pem` and `client.key`; default `certificates`. Relative to
    hosts.yaml."""
    cluster: str | None = Field(default=None, pattern=_CLUSTER)
    """ray: address of the cluster, `HOST:PORT`; default that of RAY_ADDRESS, or that of the node here."""
    resources: dict[str, float] = Field(default_factory=dict, max_length=100)
    """ray: resources that its node must have, as `{rack-a: 1}` or `{"node:10.0.0.5": 0.01}`; default: any
    node that no other host of the fleet has."""
    cores: list[int] = Field(default_factory=list, max_length=1024)
    """Cores that generate load, one worker each; default all that the agent may use."""
    sources: list[str] = Field(default_factory=list, max_length=1000)
    """Addresses to send from, as `source` of a profile's groups; default: those that it has."""
    ports: list[HostPort] = Field(default_factory=list, max_length=32)
    """DPDK ports, for profiles with `transport: dpdk`; default none."""
    weight: float | None = Field(default=None, gt=0, le=1e6, allow_inf_nan=False)
    """Its part of the load beside the others'; default the number of its cores."""

    @model_validator(mode="after")
    def _fits(self) -> HostSpec:
        for key, those in _ONLY.items():
            if self.launcher not in those and getattr(self, key) is not None:
                raise ValueError(f"{key!r} is for `launcher: {' or '.join(those)}`")
        if self.resources and self.launcher != "ray":
            raise ValueError("'resources' is for `launcher: ray`")
        if any(not 0 < count <= 1e6 for count in self.resources.values()):
            raise ValueError("resources are numbers above 0")
        if twice := reading.twice([port.name for port in self.ports]):
            raise ValueError(f"two ports are called {twice!r}")
        if len(set(self.cores)) < len(self.cores) or any(not 0 <= core < 4096 for core in self.cores):
            raise ValueError("cores are numbers from 0 on, each once")
        return self


class FleetSpec(Config):
    """Hosts that generate load together."""

    schema_: str | None = Field(default=None, alias="$schema")
    """Where this format's schema is; for editors, not read."""
    format: Literal["netdyno-fleet/1"]
    """Which format this is."""
    name: str | None = Field(default=None, pattern=NAME)
    """Name of the fleet; default that of the file."""
    hosts: list[HostSpec] = Field(min_length=1, max_length=MOST_HOSTS)
    """The hosts, in the order in which results list them."""
    agents_per_relay: int = Field(default=PER_RELAY, ge=1, le=PER_RELAY)
    """A fleet of more agents is reached through relays, each of which speaks with as many at most."""

    @field_validator("hosts")
    @classmethod
    def _names(cls, hosts: list[HostSpec]) -> list[HostSpec]:
        if twice := reading.twice([host.name for host in hosts]):
            raise ValueError(f"two hosts are called {twice!r}")
        return hosts


@dataclass(frozen=True)
class HostsFile:
    """A checked hosts.yaml."""

    name: str
    hosts: tuple[HostSpec, ...]
    agents_per_relay: int = PER_RELAY


def read(path: Path) -> HostsFile:
    """Read and check a hosts.yaml. Raises `ND-104-91` with the line of each fault."""
    text = reading.text(path, reading.DOCUMENT)
    data = config.parse_text(text, str(path), path.suffix)
    if not isinstance(data, Mapping):
        fix = f"Begin it with `format: {FORMAT}`, then `hosts:` with a list"
        raise Error(WRONG, "it lists no hosts", at=str(path), fix=fix)
    try:
        spec = config.check(FleetSpec, data, WRONG, str(path))
    except Error as e:
        raise _placed(e, text, str(path)) from None
    name = spec.name or path.stem
    if not re.fullmatch(NAME, name):
        fix = "Add `name:` with letters, digits, - and _"
        raise Error(WRONG, f"{name[:80]!r} cannot name a fleet", at=str(path), fix=fix)
    located = tuple(_located(host, path.parent) for host in spec.hosts)
    return HostsFile(name, located, spec.agents_per_relay)


def _located(host: HostSpec, folder: Path) -> HostSpec:
    """The host with its files found beside hosts.yaml."""
    given = {key: getattr(host, key) for key in ("key", "known_hosts", "certificates")}
    if host.launcher == "address":
        given["certificates"] = given["certificates"] or CERTIFICATES
    found = {
        key: str((folder / Path(named).expanduser()).absolute())
        for key, named in given.items()
        if named is not None
    }
    return host.model_copy(update=found)


def _placed(e: Error, text: str, file: str) -> Error:
    """The same error with lines for places."""
    findings = [dict(one) for one in e.all] or [e.as_dict()]
    for one in findings:
        place = str(one["at"]).removeprefix(file).removeprefix(": ")
        one["at"] = f"{file}: line {line(text, place)}" + (f": {place}" if place else "")
    return Error.of(findings[0] | ({"all": findings} if len(findings) > 1 else {}))


_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def line(text: str, place: str) -> int:
    """The line of a place like `hosts[1].port`; of a key that is missing, that of what should have it."""
    node: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    found = 1
    for step in _STEP.finditer(place):
        key, number = step.groups()
        if number is not None and isinstance(node, yaml.SequenceNode) and int(number) < len(node.value):
            node = node.value[int(number)]
            found = node.start_mark.line + 1
        elif key is not None and isinstance(node, yaml.MappingNode):
            pair = next(((k, v) for k, v in node.value if str(k.value) == key), None)
            if pair is None:
                break
            found, node = pair[0].start_mark.line + 1, pair[1]
        else:
            break
    return found
