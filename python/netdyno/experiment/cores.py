"""What generates the load of a run: daemons of this machine, or a fleet of others."""

from __future__ import annotations

from typing import Any

from netdyno.core.address import Address
from netdyno.errors import Error
from netdyno.experiment.measurer import Connect, FleetCore, FleetHost
from netdyno.experiment.spec import Experiment
from netdyno.lazy import loaded
from netdyno.systems import named


def fleets(
    name: str | None, tolerate: int, experiment: Experiment, socket: Address | None = None
) -> dict[str, FleetCore]:
    """The fleet of each leg that has one: `name`, else that of the leg; `tolerate` of its hosts may be lost.

    Raises `ND-104-07` for what does not go with a fleet and where no system has fleets, `ND-104-90` where
    none of the name is up.
    """
    wanted = {leg.name: found for leg in experiment.legs if (found := name or leg.fleet) is not None}
    if not wanted:
        if tolerate:
            what, fix = "only hosts of a fleet can be lost", "Add --fleet NAME"
            raise Error("ND-104-07", what, at="--tolerate", fix=fix)
        return {}
    if socket is not None:
        what, fix = "a fleet has daemons of its own", "Leave out --socket or the fleet"
        raise Error("ND-104-07", what, at="--socket", fix=fix)
    if inside := next((leg.name for leg in experiment.legs if leg.topology and leg.name in wanted), None):
        fix = "Leave the topology out, and point the targets at servers that the fleet reaches"
        what = "a topology has a generator of its own"
        raise Error("ND-104-07", what, at=f"legs.{inside}.topology", fix=fix)
    connector = _of_fleets("cores")
    cores = {one: FleetCore(one, connector(one, tolerate)) for one in set(wanted.values())}
    return {leg: cores[one] for leg, one in wanted.items()}


def hosts(name: str) -> list[FleetHost]:
    """The hosts of a fleet, each by itself. Raises `ND-104-90` where none of the name is up."""
    found: list[FleetHost] = _of_fleets("hosts")(name)
    return found


def names() -> list[str]:
    """Fleets that are up; none where no system has fleets."""
    listed = named("core_names").get("fleet")
    found: list[str] = loaded(listed)() if listed else []
    return found


def connector(name: str) -> Connect:
    """Connects to a fleet of which no host may be lost. Raises `ND-104-90` where none of the name is up."""
    found: Connect = _of_fleets("cores")(name, 0)
    return found


def port(fleet: str | None) -> dict[str, Any]:
    """A port as the hosts of a fleet have one, for a profile: each host has its own in its place.

    Raises `ND-104-07` where there is no fleet, or none of its hosts has a port.
    """
    if fleet is None:
        fix = "Add --fleet NAME, or give this machine's port with --port DEVICE --ip ADDRESS/PREFIX"
        raise Error("ND-104-07", "it is for hosts of a fleet", at="--transport dpdk", fix=fix)
    ports = [one for host in hosts(fleet) for one in host.ports]
    if not ports:
        fix = "Add `ports` to the hosts in hosts.yaml, and start the fleet again"
        raise Error(
            "ND-104-07", f"no host of the fleet {fleet} has a DPDK port", at="--transport dpdk", fix=fix
        )
    return dict(ports[0])


def _of_fleets(what: str) -> Any:
    found = named(what).get("fleet")
    if found is None:
        raise Error("ND-104-07", "this netdyno has no fleets", at="--fleet", fix="Leave out --fleet")
    return loaded(found)
