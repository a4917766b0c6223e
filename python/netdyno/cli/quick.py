"""Profiles for those who have none yet: from `mqtt://host` and a few options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
        model["size"] = _unit(o.size, "B")
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
            model["rate"] = _unit(o.rate, "/s")
    elif is_open:
        if o.rate is None:
            raise Error("ND-104-07", "an open load needs a rate", at="--open", fix="Add --rate 100/s")
        load = {"open": {"rate": _unit(o.rate, "/s")}}
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


def _unit(text: str, unit: str) -> str:
    """On the command line a bare number has the usual unit."""
    return text + unit if text.replace(".", "").replace("_", "").isdigit() else text
