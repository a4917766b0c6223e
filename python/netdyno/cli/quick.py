"""Profiles for those who have none yet: from `mqtt://host` and a few options."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from netdyno.errors import Error

PROTOCOLS = {
    "mqtt": "mqtt", "mqtts": "mqtt", "http": "http", "https": "http", "ping": "ping", "udp": "stream",
}  # fmt: skip


@dataclass(frozen=True)
class Quick:
    """The options of a quick form; None: what suits the protocol."""

    devices: int | None = None
    rate: str | None = None
    interval: str | None = None
    count: int | None = None
    qos: int | None = None
    size: str | None = None
    open: bool | None = None
    source: tuple[str, ...] = ()
    insecure: bool = False


def is_url(text: str) -> bool:
    """Whether an argument is a target and not a file or preset."""
    return "://" in text


_HOST = re.compile(
    r"(localhost|\d+(\.\d+){3}|\[[0-9a-fA-F:]+\]|[\w-]+(\.[\w-]+)+|[\w-]+(?=:))(:\d+)?(/.*)?", re.ASCII
)


def no_url(text: str) -> Error | None:
    """That an argument was meant for a URL and is none, with the URL that may be meant."""
    if is_url(text) or Path(text).suffix in (".json", ".yaml", ".yml") or Path(text).exists():
        return None
    scheme, colon, rest = text.partition(":")
    if colon and scheme in PROTOCOLS:
        fix = f"Write {scheme}://{rest.lstrip('/') or 'HOST'}"
        return Error("ND-104-26", "a URL has :// after its scheme", at=text, fix=fix)
    if not _HOST.fullmatch(text):
        return None
    host = text.partition("/")[0]
    bare = host if host.endswith("]") else host.rpartition(":")[0] or host
    port = host[len(bare) :]
    fix = (
        f"Say how to speak to a host: mqtt://{bare}{port or ':1883'}, http://{text}, ping://{bare} "
        f"or udp://{bare}{port or ':7'}"
    )
    return Error("ND-104-26", "it is no URL, no file and no preset", at=text, fix=fix)


_OPTIONS = {
    "source": "--source", "devices": "--devices", "load.open.rate": "--rate", "rate": "--rate",
    "size": "--size", "interval": "--interval", "count": "--count", "requests": "--count", "qos": "--qos",
}  # fmt: skip


def place(urls: Sequence[str], at: str) -> str:
    """Where on the command line a place in the made profile comes from: an option, else the URL."""
    found = re.match(r"groups\[(\d+)\]\.(?:model\.\w+\.)?([\w.]+)", at)
    if found is None:
        return at
    return _OPTIONS.get(found[2]) or urls[int(found[1])]


def profile(urls: Sequence[str], options: Quick) -> dict[str, Any]:
    """A profile with one group for each URL."""
    groups: list[dict[str, Any]] = []
    for i, url in enumerate(urls):
        scheme = url.partition("://")[0]
        if scheme not in PROTOCOLS:
            raise Error(
                "ND-104-26",
                f"there is no quick form for {scheme}://",
                at=url,
                fix=f"Use one of {', '.join(PROTOCOLS)}; others need a profile with the model script",
            )
        protocol = PROTOCOLS[scheme]
        name = protocol if len(urls) == 1 else f"{protocol}-{i + 1}"
        groups.append(_group(name, protocol, url, options))
    # who asks for nothing more wants to know at least whether it worked
    thresholds = [{"metric": f"{group['name']}.errors", "max": 0} for group in groups]
    name = "-".join(dict.fromkeys(PROTOCOLS[u.partition("://")[0]] for u in urls))
    return {"name": name, "groups": groups, "thresholds": thresholds}


def _group(name: str, protocol: str, url: str, o: Quick) -> dict[str, Any]:
    model: dict[str, Any] = {}
    if o.size is not None:
        if protocol == "http":
            raise Error(
                "ND-104-07",
                "the server chooses the size of an HTTP answer",
                at="--size",
                fix="Name a path: http://HOST/512",
            )
        model["size"] = o.size
    if o.interval is not None:
        model["interval"] = o.interval
    if o.qos is not None and protocol == "mqtt":
        model["qos"] = o.qos
    # an open flow that never ended would fill every device with the first ones
    is_open = o.open if o.open is not None else o.rate is not None and protocol != "stream"
    count = (
        o.count if o.count is not None else {"mqtt": 3, "http": 1, "ping": 1, "stream": 0}[protocol] * is_open
    )
    model["requests" if protocol == "http" else "count"] = count
    target = url
    if protocol == "http":
        parts = urlsplit(url)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        if path:
            model["path"] = path
            target = f"{parts.scheme}://{parts.netloc}"
    load: dict[str, Any] = {"closed": {}}
    if protocol == "stream":
        if o.rate is not None:
            model["rate"] = o.rate
    elif is_open:
        if o.rate is None:
            raise Error("ND-104-07", "an open load needs a rate", at="--open", fix="Add --rate 100/s")
        load = {"open": {"rate": o.rate}}
    elif o.rate is not None:
        raise Error("ND-104-07", "a closed load has no rate", at="--closed", fix="Use --interval, or --open")
    default = {"mqtt": 10, "http": 10, "ping": 1, "stream": 1}[protocol] * (20 if is_open else 1)
    group: dict[str, Any] = {
        "name": name,
        "target": target,
        "model": {protocol: model},
        "devices": o.devices or default,
        "load": load,
    }
    if o.source:
        group["source"] = list(o.source)
    if o.insecure and target.split("://")[0] in ("mqtts", "https"):
        group["tls"] = {"insecure": True}
    return group
