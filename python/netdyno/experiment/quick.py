"""Profiles for those who have none yet: from `mqtt://host` and a few options."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from netdyno import systems
from netdyno.core import models
from netdyno.core.wire import ModelDescription, Scheme, UrlMapping
from netdyno.errors import Error
from netdyno.experiment import quick_request, url_options
from netdyno.experiment.url_options import UrlOptions as UrlOptions
from netdyno.system.local_url import here
from netdyno.units import bound

SHARED = 100
"""Messages per second where nothing is said and the server shares the machine."""
FASTEST = 100e6
"""Messages per second of one device: beyond, the time between two has no meaning."""


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
    if colon and scheme.lower() in models.quick():
        fix = f"Write {scheme}://{rest.lstrip('/') or 'HOST'}"
        return Error("ND-104-26", "a URL has :// after its scheme", at=text, fix=fix)
    if colon and (verbs := systems.named("uris").get(scheme.lower())):
        what = f"{scheme.upper()} is loaded by verbs of its own"
        return Error("ND-104-26", what, at=text, fix=f"Use {verbs.replace('{uri}', text)}")
    if not _HOST.fullmatch(text):
        return None
    host = text.partition("/")[0]
    bare = host if host.endswith("]") else host.rpartition(":")[0] or host
    port = host[len(bare) :]
    *some, last = [_meant(model, text, bare, port) for model in models.all_models() if model.quick]
    fix = f"Say how to speak to a host: {', '.join(some)} or {last}"
    return Error("ND-104-26", "it is no URL, no file and no preset", at=text, fix=fix)


def _meant(model: ModelDescription, text: str, bare: str, port: str) -> str:
    """The URL that a host alone would be for a model."""
    scheme = model.schemes[0]
    if scheme.carrier == "icmp":
        return f"{scheme.name}://{bare}"
    if model.quick and model.quick.path:
        return f"{scheme.name}://{text}"
    return f"{scheme.name}://{bare}{port or f':{scheme.port or 7}'}"


def option_of(urls: Sequence[str], at: str) -> str:
    """Where on the command line a place in the made profile comes from: an option, else the URL."""
    found = re.match(r"groups\[(\d+)\]\.(?:model\.(\w+)\.)?([\w.]+)", at)
    if found is None:
        return at
    model = next((one for one in models.all_models() if one.name == found[2]), None)
    keys = dict(model.quick.options) if model and model.quick else {}
    return url_options.flag(found[3], keys) or urls[int(found[1])]


def profile(urls: Sequence[str], options: UrlOptions) -> dict[str, Any]:
    """A profile with one group for each URL."""
    known = models.quick()
    spoken = [_scheme(url, known) for url in urls]
    used = [(known[scheme.name], scheme) for scheme in spoken]
    quick_request.refuse_unused(options.set_options(), used, known)
    groups: list[dict[str, Any]] = []
    for i, (url, scheme) in enumerate(zip(urls, spoken, strict=True)):
        model = known[scheme.name]
        name = model.name if len(urls) == 1 else f"{model.name}-{i + 1}"
        groups.append(_group(name, model, scheme, url, options))
    # who asks for nothing more wants to know at least whether it worked, and whether all of it did
    thresholds = [
        {"metric": f"{group['name']}.{what}", "max": 0}
        for group in groups
        for what in (("errors", "loss") if _confirmed(group) else ("errors",))
    ]
    name = "-".join(dict.fromkeys(known[scheme.name].name for scheme in spoken))
    said = "; ".join(_options_summary(group, options) for group in groups)
    made: dict[str, Any] = {"name": name, "description": said, "groups": groups, "thresholds": thresholds}
    if options.requests is not None:
        made["phases"] = {"warmup": "0s", "measure": f"{max(_longest(group, options) for group in groups)}s"}
    return made


def _longest(group: dict[str, Any], o: UrlOptions) -> int:
    """Seconds that a number of messages may take: twice those of its rate and a minute, or an hour."""
    rate = bound(o.rate) if o.rate is not None else SHARED if "ramp" in group["load"].get("closed", {}) else 0
    return math.ceil(2 * (o.requests or 0) / rate) + 60 if rate else 3600


def _scheme(url: str, known: Mapping[str, ModelDescription]) -> Scheme:
    """The scheme of a URL that a model can be started with."""
    name = url.partition("://")[0].lower()
    if found := models.scheme_of(known[name], name) if name in known else None:
        return found
    without = " or ".join(model.name for model in models.all_models() if not model.quick)
    raise Error(
        "ND-104-26",
        f"there is no quick form for {name}://",
        at=url,
        fix=f"Use one of {', '.join(known)}; others need a profile with the model {without}",
    )


def _confirmed(group: dict[str, Any]) -> bool:
    """Whether silence is loss: not where nobody confirms a message."""
    model, given = models.of_group(group)
    return model.confirms(given)


def _options_summary(group: dict[str, Any], o: UrlOptions) -> str:
    """What the options come to, for the header of the run."""
    quick = models.of_group(group)[0].quick
    assert quick is not None, "it was made from a URL"
    n, many = group["devices"], group["devices"] != 1
    what = quick.messages
    unit = quick.device + "s" * many
    kept = "kept " if quick.device == "connection" else ""
    if "open" in group["load"]:
        said = f"{o.rate} flows, one connection each, {n} {unit} at most"
    elif _modest(models.of_group(group)[0], str(group["target"]), o):
        said = (
            f"{SHARED}/s {what} in all, over {n} {kept}{unit}: default {SHARED}/s because the server "
            f"is on this machine; set --rate, or --closed for maximum speed"
        )
    elif o.rate is not None:
        said = f"{o.rate} {what} in all, over {n} {kept}{unit}, on schedule without waiting for replies"
    elif o.connection_per_request:
        said = f"one connection per request, {n} at a time, the next when the reply arrives"
    elif o.interval is not None:
        said = f"{what} every {o.interval} on each of {n} {kept}{unit}"
    else:
        said = f"{what} over {n} {kept}{unit}"
    if o.requests is not None:
        said += f"; {o.requests} in all, then the run ends"
    return f"{group['name']}: {said}"


def pool(rate: float) -> int:
    """How many connections share a rate: each asks once a second at least, and a hundred times at most."""
    return min(1000, max(min(50, math.ceil(rate)), math.ceil(rate / 100), 1))


def _modest(about: ModelDescription, url: str, o: UrlOptions) -> bool:
    """Whether the load is one that a machine can measure which the server shares with the generator.

    That is where nothing is said of the load, the model alone would send as fast as answers come, and the
    server is on this machine: both ends at full speed want all cores, and a generator that waits for its CPU
    measures itself.
    """
    quick = about.quick
    said = (o.rate, o.interval, o.open) != (None, None, None) or o.connection_per_request
    if said or quick is None:
        return False
    given = about.defaults.get(about.name, about.defaults)
    paced = given.get(quick.interval) not in (None, 0, "0s") or (quick.rate and given.get(quick.rate))
    return not paced and here(url)


def _share(model: dict[str, Any], quick: UrlMapping, rate: float, devices: int) -> dict[str, Any]:
    """Each device sends at its share of the rate, on a schedule of its own that does not wait for answers.

    The devices begin one after the other over the time from one message of a device to its next: those of all
    are evenly spread.
    """
    if rate <= 0:
        raise Error(
            "ND-104-05", "a rate of 0 sends nothing", at="--rate", fix="Use a rate above 0, like 100/s"
        )
    if rate > FASTEST * devices:
        what = f"{rate:g}/s are more than {devices} device{'s' * (devices != 1)} can send"
        raise Error("ND-104-05", what, at="--rate", fix="Ask for less, or for more --devices")
    each = f"{devices / rate * 1e9:.0f}ns"
    if quick.rate:
        model[quick.rate] = f"{rate / devices:.12g}/s"
    else:
        model[quick.interval] = each
    return {"ramp": each} if devices > 1 else {}


def _fitting(o: UrlOptions) -> None:
    """Refuse options that say two things about the same, or nothing at all."""

    def refuse(what: str, at: str, fix: str) -> Error:
        return Error("ND-104-07", what, at=at, fix=fix)

    if o.open and o.rate is None:
        raise refuse("an open load needs a rate", "--open", "Add --rate 100/s")
    if o.rate is None:
        return
    if o.open is False:
        raise refuse("a closed load has no rate", "--closed", "Use --interval, or leave --closed out")
    if o.open or o.connection_per_request:
        return
    if o.interval is not None:
        raise refuse(
            "--rate and --interval both say when messages are due",
            "--interval",
            "Use one: --rate is of all devices together, --interval of each",
        )
    if o.count is not None and o.count > 0:
        raise refuse(
            "a rate over keep-alive connections has no end, but --count ends flows",
            "--count",
            "Leave it out, or add --open: flows of so many messages then begin at that rate, each on a "
            "connection of its own",
        )


def _split(url: str) -> SplitResult | None:
    """Its parts; None of one that is none, of which the daemon says what is wrong."""
    try:
        return urlsplit(url)
    except ValueError:
        return None


def _group(name: str, about: ModelDescription, scheme: Scheme, url: str, o: UrlOptions) -> dict[str, Any]:
    quick = about.quick
    assert quick is not None, "it was looked up by its scheme"
    model: dict[str, Any] = {}
    if o.size is not None:
        if refused := quick.size.get("refused"):
            raise Error("ND-104-07", refused["why"], at="--size", fix=refused["fix"])
        model[quick.size["key"]] = o.size
    if o.interval is not None:
        model[quick.interval] = o.interval
    quick_request.apply(model, about, {one: getattr(o, one, None) for one, _ in quick.options})
    _fitting(o)
    # an open flow that never ended would fill every device with the first ones
    alone = o.connection_per_request and scheme.connects
    is_open = bool(o.open) or (alone and o.rate is not None)
    model[quick.count] = o.count if o.count is not None else int(is_open or alone)
    target = url = quick_request.with_user(url, o.user) if o.user and "user" in dict(quick.options) else url
    if quick.path and (parts := _split(url)):
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        if parts.query and not parts.path:
            path = f"/{path}"
        # what a fragment means is for the model to say
        if path and not parts.fragment:
            model[quick.path] = path
            target = f"{parts.scheme}://{parts.netloc}"
    load: dict[str, Any] = {"closed": {}}
    most = o.requests or math.inf
    devices = int(min(o.devices or quick.devices * (20 if is_open else 1), most))
    if is_open:
        load = {"open": {"rate": o.rate}}
    elif _modest(about, url, o):
        load = {"closed": _share(model, quick, SHARED, devices)}
    elif o.rate is not None:
        devices = int(min(o.devices or (pool(bound(o.rate)) if scheme.connects else 1), most))
        load = {"closed": _share(model, quick, bound(o.rate), devices)}
    group: dict[str, Any] = {
        "name": name,
        "target": target,
        "model": {about.name: model},
        "devices": devices,
        "load": load,
    }
    if o.requests is not None:
        group["total"] = o.requests
    if o.source:
        group["source"] = list(o.source)
    tls = {
        one.tls: value for one in url_options.OPTIONS.values() if one.tls and (value := getattr(o, one.name))
    }
    for one in url_options.OPTIONS.values():
        if one.value == "file" and (name_of := getattr(o, one.name)) and not Path(name_of).is_file():
            raise Error(
                "ND-104-20", "there is no such file", at=f"{one.flag} {name_of}", fix="Check the path"
            )
    if tls and scheme.tls:
        group["tls"] = tls
    return group
