"""The launcher `ray`: agents on the nodes of a Ray cluster that exists.

Ray places an actor for each host, which starts the agent and ends with it. The agent serves mutual TLS, by
certificates that are made for it alone: a run speaks with it and never with Ray. An actor is started once; a
cluster in which anybody may start one is refused.
"""

from __future__ import annotations

import importlib
import logging
import os
import secrets
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from netdyno.core import daemon
from netdyno.errors import Error
from netdyno.fleet import certificates, ray_agent
from netdyno.fleet.address import Secure, shut_down
from netdyno.fleet.agents import Agent
from netdyno.fleet.hosts import HostSpec
from netdyno.system.journal import Journal

NAMESPACE = "netdyno"
"""Of actors' names."""
OLDEST = (2, 52)
"""The first release in which a cluster knows who may use it."""
SETTINGS = {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
"""Of Ray in this process."""
START = 90.0
"""Seconds in which an actor is placed, and in which its agent starts."""
TOKEN = "Make a token with `ray get-auth-token --generate`, and start all nodes with RAY_AUTH_MODE=token"


class Ray:
    """Starts agents on nodes of a Ray cluster."""

    remote = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cluster: str | None = None
        self._nodes: dict[str, tuple[str, str]] = {}
        """Actor → its fleet and node, where it has that for itself."""

    def brings_files(self, _: HostSpec) -> bool:
        """Nothing but the agent's own port leads there."""
        return False

    def start(self, fleet: str, host: HostSpec, notes: Journal) -> Agent:
        """Place an actor and start the agent. Raises `ND-92-90` where there is no node, or it fails."""
        ray = self._joined(host)
        actor = f"{fleet}.{host.name}.{secrets.token_hex(6)}"
        agent = Agent(host, "", identity=str(certificates.new_folder(host.name)), actor=actor)
        notes.write("fleet_agent", agent=agent.as_dict(), words=f"agent of the fleet {fleet} on {host.name}")
        made = certificates.make(fleet, [host.name], days=certificates.UP_DAYS)
        certificates.write_client(made, Path(agent.identity))
        placed = self._place(ray, fleet, host, actor)
        try:
            mode = ray.get(placed.auth_mode.remote(), timeout=START)
            if mode != "token":
                what = "anybody who reaches the cluster may start programs on it: it asks for no token"
                raise _failed(host, what, TOKEN)
            node = ray.get(placed.address.remote(), timeout=START)
            listen = f"[{node}]:{host.port or 0}" if ":" in node else f"{node}:{host.port or 0}"
            program = daemon.program_to_copy().read_bytes()
            files = certificates.agent_files(made, host.name)
            told = ray.get(placed.start.remote(program, files, listen), timeout=START)
        except ray.exceptions.GetTimeoutError:
            ray.kill(placed)
            fix = "See `ray status` and the keys `resources` and `cores` of the host"
            raise _failed(host, f"no node had room for it within {START:g} s", fix) from None
        except ray.exceptions.RayError as e:
            ray.kill(placed)
            cause = getattr(e, "cause", None)
            said = str(cause) if cause else str(e).strip().splitlines()[-1]
            raise _failed(host, said, "See the log of the actor: `ray logs`") from None
        except BaseException:
            ray.kill(placed)
            raise
        port = int(str(told["mtls"]).rpartition(":")[2])
        return replace(agent, pid=int(told["pid"]), port=port, address=node)

    def connect(self, agent: Agent, token: str, notes: Journal) -> Secure:
        """Over mutual TLS, past Ray."""
        return _way(agent)

    def stop(self, agent: Agent) -> bool:
        """End the agent, with which its actor ends, and remove what opened it.

        An agent that has served hears it from us: Ray may be gone.
        """
        found = shut_down(_way(agent)) if agent.port else self._kill(agent)
        with self._lock:
            self._nodes.pop(agent.actor, None)
        return certificates.remove(Path(agent.identity)) or found

    def kernel(self, host: HostSpec) -> None:
        """None: its agent alone is reached."""

    def examine(self, host: HostSpec) -> Iterator[tuple[bool, str, str]]:
        """Whether the cluster lets us in, and has what the host asks for."""
        ray = self._joined(host)
        nodes = [one for one in ray.nodes() if one["Alive"]]
        yield True, f"Ray {ray.__version__} with {len(nodes)} nodes", ""
        wanted = dict(host.resources) | {"CPU": _cpus(host)}
        if not any(_has(node, wanted) for node in nodes):
            asked = ", ".join(f"{count:g} {name}" for name, count in wanted.items())
            yield False, f"no node has {asked}", "Change `resources` or `cores` of the host"

    def _joined(self, host: HostSpec) -> Any:
        """Ray's module, connected to the cluster."""
        with self._lock:
            # read when it is imported
            os.environ.update(SETTINGS)
            try:
                ray = importlib.import_module("ray")
            except ImportError:
                raise _failed(host, "Ray is not installed here", "pip install 'netdyno[ray]'") from None
            logging.getLogger("ray").setLevel(logging.ERROR)
            if tuple(int(part) for part in ray.__version__.split(".")[:2]) < OLDEST:
                oldest = ".".join(map(str, OLDEST))
                what = f"Ray {ray.__version__} does not know who may use a cluster"
                raise _failed(host, what, f"Install Ray {oldest} or newer, here and in the cluster")
            cluster = host.cluster or "auto"
            if self._cluster is None:
                _join(ray, cluster, host)
                self._cluster = cluster
            elif self._cluster != cluster:
                what = f"the cluster of another host is {self._cluster}"
                raise _failed(host, what, "Use one cluster for all hosts of a fleet")
        return ray

    def _place(self, ray: Any, fleet: str, host: HostSpec, name: str) -> Any:
        """The actor of a host: where its `resources` are, else on a node that no other host has."""
        options: dict[str, Any] = {"resources": dict(host.resources)}
        with self._lock:
            if not host.resources:
                taken = {node for of, node in self._nodes.values() if of == fleet}
                nodes = [one for one in ray.nodes() if one["Alive"] and _has(one, {"CPU": _cpus(host)})]
                free = sorted({one["NodeID"] for one in nodes} - taken)
                if not free:
                    what = f"all {len(nodes)} nodes of the cluster that have {_cpus(host)} CPUs are taken"
                    raise _failed(host, what, "Use fewer hosts, or say with `resources` where they may be")
                strategies = importlib.import_module("ray.util.scheduling_strategies")
                options["scheduling_strategy"] = strategies.NodeAffinitySchedulingStrategy(
                    free[0], soft=False
                )
                self._nodes[name] = (fleet, free[0])
        importlib.import_module("ray.cloudpickle").register_pickle_by_value(ray_agent)
        actor = ray.remote(ray_agent.NodeAgent).options(
            name=name, namespace=NAMESPACE, lifetime="detached", max_restarts=0, max_task_retries=0,
            num_cpus=_cpus(host), **options,
        )  # fmt: skip
        return actor.remote()

    def _kill(self, agent: Agent) -> bool:
        """End an actor whose agent never served."""
        ray = self._joined(agent.host)
        try:
            actor = ray.get_actor(agent.actor, namespace=NAMESPACE)
        except ValueError:
            return False
        ray.kill(actor)
        return True


def _join(ray: Any, cluster: str, host: HostSpec) -> None:
    try:
        ray.init(address=cluster, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
    except (ray.exceptions.RayError, OSError, RuntimeError, ValueError) as e:
        said = (str(e).strip().splitlines() or [type(e).__name__])[0]
        fix = (
            "Run this on a node of the cluster; its token is looked for in RAY_AUTH_TOKEN, ~/.ray/auth_token"
        )
        raise _failed(host, said, fix) from e


def _way(agent: Agent) -> Secure:
    return Secure(agent.address, agent.port, Path(agent.identity), agent.host.name)


def _cpus(host: HostSpec) -> int:
    """What Ray is told that an agent uses."""
    return len(host.cores) or 1


def _has(node: dict[str, Any], wanted: dict[str, float]) -> bool:
    return all(node["Resources"].get(name, 0.0) >= count for name, count in wanted.items())


def _failed(host: HostSpec, what: str, fix: str) -> Error:
    return Error("ND-92-90", what, at=host.cluster or "Ray cluster", fix=fix)
