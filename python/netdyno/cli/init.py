"""`netdyno init`: a profile of one's own, with every key explained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from netdyno import config, files
from netdyno.cli import console, values
from netdyno.errors import Error
from netdyno.experiment import presets

COMMENTS = {
    "name": "A short name: letters, digits, - and _.",
    "description": "What it is for.",
    "seed": "Of everything random: the same seed gives the same load.",
    "phases": "How long each part takes. Only `measure` counts.",
    "targets": "Addresses under test by name; `--target NAME=URL` replaces one for a run.",
    "transport": "sockets: the kernel's TCP, UDP and ICMP. dpdk: our own endpoints over DPDK ports.",
    "groups": "Groups of like devices, all at the same time.",
    "validity": "When the measurement itself cannot be trusted.",
    "thresholds": "What must hold for the verdict `pass`.",
    "capture": "Packets to keep for Wireshark.",
    "model": "The protocol and its parameters; what is left out has a default (docs/reference/profile.md).",
    "load": "open: flows begin at given times. closed: each device begins again when it is done.",
}


def init(
    preset: Annotated[
        str,
        typer.Argument(help="Preset to start from.", metavar="PRESET", autocompletion=values.profile_preset),
    ] = "mqtt-t4",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write; - is standard output.", metavar="FILE"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a commented starter profile.

    The profile is a preset as YAML with comments; `netdyno describe` lists the presets.

        netdyno init                      # mqtt-t4.yaml
        netdyno init http -o web.yaml
        netdyno validate web.yaml && netdyno run web.yaml --target web=http://10.0.0.2
    """
    text = commented(presets.profile(preset))
    path = output or Path(f"{preset}.yaml")
    if str(path) == "-":
        print(text, end="")
        return
    if path.exists() and not force:
        raise Error(
            "ND-104-20", "the file is there already", at=str(path), fix="Use --force, or -o another file"
        )
    files.write(path, text, shared=True)
    console.note(f"wrote {path}; check it with `netdyno validate {path}`, run it with `netdyno run {path}`")


def commented(profile: dict[str, Any]) -> str:
    """A profile as YAML with a comment above each key that has one."""
    lines = ["# A netdyno profile. Quantities have units: 250ms, 1000/s, 64B.", ""]
    dumped = yaml.safe_dump(profile, sort_keys=False, allow_unicode=True, width=100)
    for line in dumped.splitlines():
        key = line.strip().removeprefix("- ").partition(":")[0]
        indent = line[: len(line) - len(line.lstrip())]
        first = not any(f"# {COMMENTS.get(key)}" in earlier for earlier in lines)
        if key in COMMENTS and first and (not indent or key in ("model", "load")):
            if not indent and not line.startswith("- "):
                lines += [""] if lines[-1] else []
            lines.append(f"{indent}# {COMMENTS[key]}")
        lines.append(line)
    text = "\n".join(lines) + "\n"
    assert config.parse_text(text, "init") == profile, "comments must not change what the profile says"
    return text
