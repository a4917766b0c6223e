"""Certificates of agents and of who calls them. The key of the CA that signs them is never written."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netdyno import files
from netdyno.core import daemon
from netdyno.core.mtls import CA, CERT, KEY
from netdyno.errors import Error
from netdyno.fleet import agents
from netdyno.fleet.hosts import HostSpec

AGENT_CERT, AGENT_KEY = "agent.pem", "agent.key"
UP_DAYS = 7
"""Validity of what `fleet up` makes: a fleet that stays up longer is to be taken down and up again."""
DAY = 86_400
TIMEOUT = 60.0


@dataclass(frozen=True)
class Certificates:
    """What one CA has signed (PEM)."""

    ca: str
    client: tuple[str, str]
    """Certificate and key of who calls."""
    agents: dict[str, tuple[str, str]]
    """Certificate and key of each agent, by the name of its host."""


def make(fleet: str, hosts: Sequence[str], days: int) -> Certificates:
    """A CA, and what it signs; all are valid for this many days."""
    wanted = {"name": fleet, "servers": list(hosts), "valid": days * DAY}
    done = subprocess.run(
        [str(daemon.program()), "certificates"],
        input=json.dumps(wanted) + "\n",
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()
        what = said[-1] if said else f"it ended with {done.returncode}"
        raise Error("ND-92-90", f"no certificates could be made: {what}", at="netdynod certificates")
    made = json.loads(done.stdout)

    def pair(one: dict[str, Any]) -> tuple[str, str]:
        return str(one["cert"]), str(one["key"])

    return Certificates(
        str(made["ca"]), pair(made["client"]), {name: pair(one) for name, one in made["servers"].items()}
    )


def agent_files(made: Certificates, host: str) -> dict[str, str]:
    """What an agent's `--identity` folder has."""
    cert, key = made.agents[host]
    return {CA: made.ca, AGENT_CERT: cert, AGENT_KEY: key}


def write_client(made: Certificates, folder: Path) -> None:
    """What we show, and by what we know the agents; for the owner alone."""
    cert, key = made.client
    _write(folder, {CA: made.ca, CERT: cert, KEY: key})


def write(made: Certificates, folder: Path) -> None:
    """Ours in `folder`, and those of each agent in a folder in it with its host's name; in place of older
    ones. Raises, and writes nothing, where something else has one of their names."""
    agents_files = {folder / host: agent_files(made, host) for host in made.agents}
    for place, names in [(folder, (CA, CERT, KEY)), *((one, tuple(of)) for one, of in agents_files.items())]:
        _refuse_others(place, names)
    write_client(made, folder)
    for place, texts in agents_files.items():
        _write(place, texts)


def refuse_used(hosts: Sequence[HostSpec]) -> None:
    """Raise while a fleet that is up reaches agents by certificates that would be replaced."""
    folders = {one.certificates for one in hosts if one.certificates is not None}
    for name in agents.names():
        used = {one.identity for one in agents.load(name).agents if one.host.launcher == "address"}
        if both := used & folders:
            what = f"the fleet {name} is up, and reaches its agents by the certificates here"
            raise Error("ND-104-90", what, at=min(both), fix=f"Run `netdyno fleet down {name}` before")


def _refuse_others(folder: Path, names: Sequence[str]) -> None:
    """Raise where some of these are there, and not all: they were not made by us."""
    there = [name for name in names if os.path.lexists(folder / name)]
    if there and len(there) < len(names):
        others = f"may be others': not all of {', '.join(names)} are there"
        what = f"{', '.join(there)} would be replaced, and {others}"
        fix = "Move these files away, or name another folder in `certificates`"
        raise Error("ND-104-07", what, at=str(folder), fix=fix)


def _write(folder: Path, texts: dict[str, str]) -> None:
    # who may look into one that is there is its owner's choice
    files.trusted_folder(files.make_folder(folder, private=True))
    for name, text in texts.items():
        files.write(folder / name, text)


def new_folder(host: str) -> Path:
    """Where our side of one agent's certificates is kept while it is up."""
    return agents.folder() / f"{host}-{secrets.token_hex(6)}.identity"


def remove(folder: Path) -> bool:
    """Remove such a folder; whether it was there."""
    if folder.parent != agents.folder() or folder.suffix != ".identity" or not folder.is_dir():
        return False
    shutil.rmtree(folder)
    return True
