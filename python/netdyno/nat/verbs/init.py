"""`netdyno nat init`: a configuration of one's own, with every key explained."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeGuard, get_args

import typer
from pydantic import BaseModel

from netdyno import config, files
from netdyno.cli import console
from netdyno.errors import Error
from netdyno.nat.config import checked
from netdyno.nat.file import FORMAT, RUN_TO_COMPLETION, SUBSCRIBERS, File, Outside, Port

EXAMPLE: dict[str, Any] = {
    "format": FORMAT,
    "name": "cgn",
    "inside": {"device": "0000:83:00.0", "ip": "10.0.0.254/24"},
    "outside": {"device": "0000:83:00.1", "ip": "203.0.113.2/24", "gateway": "203.0.113.1"},
    "subscribers": list(SUBSCRIBERS),
    "pool": ["203.0.113.16/28"],
    "ports": {"per_block": 512, "blocks_per_subscriber": 4},
    "limits": {"sessions": 1_048_576, "subscribers": 16_384, "sessions_per_subscriber": 8_192},
    "filtering": {"udp": "endpoint_independent"},
    "execution": RUN_TO_COMPLETION,
    "workers": 1,
    "memory": "1GiB",
    "huge_pages": True,
}
UNUSED: dict[str, Any] = {
    "sites": {"most": 1024, "by": "vlan", "known": "/var/lib/netdyno/sites.json"},
    "vlan": 100,
    "mac": "02:00:00:00:00:01",
    "queues": 4,
    "burst": 32,
    "mtu": 1500,
    "routes": [{"to": "100.64.0.0/16", "via": "10.0.0.1"}],
    "host": "nat-in",
    "tcp": "address_and_port_dependent",
    "mss": 1400,
    "state": "/var/lib/netdyno/cgn.state",
    "pair": {"socket": "/run/netdyno/cgn.pair"},
    "timeouts": {"udp": "5min"},
    "forwards": [{"protocol": "tcp", "outside": "203.0.113.16:443", "inside": "10.0.0.7:8443"}],
    "exempt": ["192.0.2.0/24"],
    "outside_prefixes": ["192.168.0.0/16"],
    "reverse_path": "strict",
    "ip_options": "none",
    "acl": [{"action": "deny", "from": "inside", "protocol": "tcp", "ports": 25}],
    "deterministic": "10.0.0.0/24",
    "leases": {"file": "/var/lib/kea/kea-leases4.csv", "server": "kea"},
    "log": {"ipfix": "192.0.2.9:4739"},
    "pcp": {"mappings_per_subscriber": 32, "lifetime": {"most": "2h"}},
    "steering": "hash",
}
"""Keys that most leave out: they stand there as comments."""
HEAD = """\
# A carrier-grade NAT: `netdyno nat check FILE`, then as root `netdyno nat run FILE`; see docs/howto/nat.md.
# A key that says what its default is may be left out; one with # before it is.
"""
WIDTH = 110


def init(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write. Default: standard output.", metavar="FILE"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Print or write a commented starter configuration.

    Replace its devices and addresses with yours.

        netdyno nat init
        netdyno nat init -o cgn.yaml && netdyno nat check cgn.yaml
    """
    text = commented()
    if output is None or str(output) == "-":
        print(text, end="")
        return
    if output.exists() and not force:
        raise Error(
            "ND-104-20", "the file is there already", at=str(output), fix="Use --force, or -o another file"
        )
    if not output.parent.is_dir():
        raise Error(
            "ND-104-20", "its folder is not there", at=str(output), fix="Make it, or name another file"
        )
    files.write(output, text, shared=True)
    console.note(f"wrote {output}; put in your devices and addresses, then `netdyno nat check {output}`")


def commented() -> str:
    """The example as YAML, with what each key means above it."""
    text = HEAD + "\n".join(_lines(File, EXAMPLE, "")) + "\n"
    checked(config.parse_text(text, "init"), "init")
    assert config.parse_text(text, "init") == EXAMPLE, "comments must not change what it says"
    return text


def _lines(model: type[BaseModel], values: Mapping[str, Any], indent: str) -> Iterator[str]:
    """The keys of a model, each with its meaning; what both ports have is explained once."""
    meanings = config.field_docs(model)
    for key, field in model.model_fields.items():
        if key not in values and (key not in UNUSED or _explained(model, key)):
            continue
        if not indent:
            yield ""
        if not _explained(model, key):
            start = f"{indent}# "
            words = " ".join(meanings[key].split())
            yield from textwrap.wrap(words, WIDTH, initial_indent=start, subsequent_indent=start)
        value = values.get(key)
        if isinstance(value, dict):
            yield f"{indent}{key}:"
            yield from _lines(_model(field.annotation), value, indent + "  ")
        else:
            comment = "" if key in values else "#"
            yield f"{indent}{comment}{key}: {_written(values.get(key, UNUSED.get(key)))}"


def _explained(model: type[BaseModel], key: str) -> bool:
    """Whether it is a key of both ports: it was explained where the inside one has it."""
    return model is Outside and key in Port.model_fields


def _is_model(kind: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(kind, type) and issubclass(kind, BaseModel) and kind is not BaseModel


def _model(annotation: Any) -> type[BaseModel]:
    """The model that a field holds."""
    kinds = [annotation, *get_args(annotation)]
    return next(kind for kind in kinds if _is_model(kind))


def _written(value: Any) -> str:
    """A value as YAML that other readers read alike."""
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_written(one)}" for key, one in value.items()) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) and ":" in value else str(value)
