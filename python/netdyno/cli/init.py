"""`netdyno init`: write a preset profile with comments, to be changed."""

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
    "name": "Name of the profile: letters, digits, - and _.",
    "description": "Purpose of the profile, in a sentence.",
    "seed": "Seed of all random choices: the same seed gives the same load.",
    "phases": "Length of each phase. Only `measure` counts.",
    "targets": "Addresses under test, by name. `--target NAME=URL` replaces one for a run.",
    "transport": "sockets: TCP, UDP and ICMP of the kernel. dpdk: netdyno's endpoints on DPDK ports.",
    "groups": "Groups of like devices. All groups run at the same time.",
    "validity": "Limits beyond which the measurement is invalid.",
    "thresholds": "Conditions for the verdict `pass`.",
    "capture": "Packets to save for Wireshark.",
}
"""A comment above each of these keys at the top of a profile."""
GROUP_COMMENTS = {
    "model": "Protocol and its parameters. One that is left out has a default (docs/reference/profile.md).",
    "path": "Path of each request. Replace it with one that your server has, such as /index.html.",
    "target": "Name of a target above, or a URL.",
    "devices": "Number of virtual devices at the same time.",
    "load": "open: flows start on a schedule. closed: a device starts its next flow when the last one ends.",
}
"""A comment above the first of these keys in the groups of a profile."""


def init(
    preset: Annotated[
        str,
        typer.Argument(help="Preset to start from.", metavar="PRESET", autocompletion=values.profile_preset),
    ] = "mqtt-t4",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="File to write; - is standard output. Default: PRESET.yaml.",
            metavar="FILE",
        ),
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
    told: set[str] = set()
    for line in dumped.splitlines():
        key = line.strip().removeprefix("- ").partition(":")[0]
        indent = line[: len(line) - len(line.lstrip())]
        comment = (GROUP_COMMENTS if indent else COMMENTS).get(key)
        if comment and comment not in told and not line.startswith("- "):
            told.add(comment)
            if not indent and lines[-1]:
                lines.append("")
            lines.append(f"{indent}# {comment}")
        lines.append(line)
    text = "\n".join(lines) + "\n"
    assert config.parse_text(text, "init") == profile, "comments must not change what the profile says"
    return text
