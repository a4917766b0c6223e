"""Certificates of agents and of who calls them. The key of the CA that signs them is never written."""

from __future__ import annotations

import json
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
    """Ours in `folder`, and those of each agent in a folder in it with its host's name."""
    write_client(made, folder)
    for host in made.agents:
        _write(folder / host, agent_files(made, host))


def _write(folder: Path, texts: dict[str, str]) -> None:
    files.own_folder(folder)
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
