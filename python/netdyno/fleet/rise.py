"""Bring a fleet up whole or not at all, and down; each step is in the journal before it is made."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from netdyno.errors import Error
from netdyno.fleet import agents, orphan, status
from netdyno.fleet.agents import Agent, Fleet
from netdyno.fleet.hosts import PER_RELAY, HostSpec
from netdyno.fleet.launchers import launcher
from netdyno.system import journal
from netdyno.system.journal import Journal, run_journal


def up(name: str, hosts: Sequence[HostSpec], agents_per_relay: int = PER_RELAY) -> Fleet:
    """Start an agent on each host; an error ends those that were started.

    Where a fleet of these hosts is up, the agents that do not answer are started again. Raises `ND-104-90`
    where a fleet of this name is up with all of its agents or other hosts, or is coming up.
    """
    with agents.coming_up(name):
        if name in agents.names():
            return _repaired(agents.load(name), hosts, agents_per_relay)
        return _up(name, hosts, agents_per_relay)


def _up(name: str, hosts: Sequence[HostSpec], agents_per_relay: int) -> Fleet:
    with run_journal() as notes:
        try:
            made = Fleet(name, tuple(_started(name, hosts, notes)), agents_per_relay)
            _keep(made, notes)
        except BaseException:
            agents.forget(name)
            notes.undo_all()
            raise
    return made


def _keep(made: Fleet, notes: Journal) -> None:
    """From here on it stays until it is taken down."""
    started = notes.numbers
    notes.write(
        "fleet",
        name=made.name,
        kept=True,
        words=f"fleet {made.name}",
        agents=[one.as_dict() for one in made.agents],
    )
    agents.save(made)
    notes.forget(*started)


def _repaired(fleet: Fleet, hosts: Sequence[HostSpec], agents_per_relay: int) -> Fleet:
    """A fleet that is up, with agents in place of those that do not answer."""
    name, same = fleet.name, [one.host for one in fleet.agents] == list(hosts)
    dead = {one["name"] for one in status.ask(fleet) if one["error"]} if same else set()
    if not dead:
        fix = f"Run `netdyno fleet down {name}` before, or give the file another `name:`"
        what = f"a fleet {name!r} is up" + ("" if same else ", with other hosts")
        raise Error("ND-104-90", what, at=name, fix=fix)
    with run_journal() as notes:
        try:
            end([one for one in fleet.agents if one.host.name in dead])
            begun = {
                one.host.name: one
                for one in _started(name, [host for host in hosts if host.name in dead], notes)
            }
            made = Fleet(name, tuple(begun.get(one.host.name, one) for one in fleet.agents), agents_per_relay)
            _keep(made, notes)
        except BaseException:
            agents.save(fleet)
            notes.undo_all()
            raise
    noted = [one.as_dict() for one in made.agents]
    # the entry that it had has agents that are gone
    journal.restore(wanted=lambda entry: _is_of(entry, name) and entry["agents"] != noted)
    return made


def _is_of(entry: dict[str, Any], name: str) -> bool:
    return entry.get("kind") == "fleet" and entry.get("name") == name


def _started(name: str, hosts: Sequence[HostSpec], notes: Journal) -> list[Agent]:
    """All at once; the first error once all have ended."""

    def start(host: HostSpec) -> Agent:
        try:
            return launcher(host).start(name, host, notes)
        except Error as e:
            raise Error.of(e.as_dict() | {"what": f"host {host.name}: {e.what}"}) from e

    with ThreadPoolExecutor(max_workers=min(32, len(hosts))) as pool:
        tasks = [pool.submit(start, host) for host in hosts]
    return [task.result() for task in tasks]


def down(name: str, force: bool = False) -> list[str]:
    """End the agents of a fleet, and return what could not be ended, which the journal keeps.

    Raises `ND-92-31` for that, and the fleet stays noted as up, unless forced. It may be called again.
    """
    report = journal.restore(wanted=lambda entry: _is_of(entry, name))
    if report.failed and not force:
        fix = f"Run `netdyno fleet down {name}` again, or with --force"
        raise Error("ND-92-31", "; ".join(report.failed), fix=fix)
    if name in agents.names():
        if not report.failed:
            # the journal's entry is gone
            end(agents.load(name).agents)
        agents.forget(name)
        orphan.forget(name)
    return report.failed


def undo(entry: dict[str, Any]) -> bool:
    """End a fleet that the journal tells of; another that has its name by now stays, and so do agents that
    it has of this one."""
    those, name = [Agent.of(one) for one in entry["agents"]], str(entry["name"])
    now = list(agents.load(name).agents) if name in agents.names() else []
    if now != those:
        # one of this machine whose socket another has by now is gone
        taken = {one.socket for one in now if one.socket}
        return end([one for one in those if one not in now and one.socket not in taken])
    end(those)
    orphan.forget(name)
    return agents.forget(name)


def undo_agent(entry: dict[str, Any]) -> bool:
    """End an agent of a fleet that never came up."""
    one = Agent.of(entry["agent"])
    return launcher(one.host).stop(one)


def end(those: Sequence[Agent]) -> bool:
    """End agents, all at once; whether there was any."""
    if not those:
        return False
    with ThreadPoolExecutor(max_workers=min(32, len(those))) as pool:
        tasks = [pool.submit(launcher(one.host).stop, one) for one in those]
    found = [task.result() for task in tasks]
    return any(found)
