"""`netdyno run`: a profile, an experiment, a preset, or just a URL."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from netdyno import config, experiment, presets
from netdyno.cli import quick
from netdyno.cli.execute import Outputs, execute
from netdyno.errors import Error
from netdyno.experiment import Experiment

LOAD, OUTPUT = "Load", "Output"


def run(
    what: Annotated[list[str], typer.Argument(help="File, preset name, or URLs.", metavar="WHAT...")],
    target: Annotated[
        list[str] | None, typer.Option(help="Point a target of the profile elsewhere.", metavar="NAME=URL")
    ] = None,
    load: Annotated[float | None, typer.Option(help="Scale the load by X.", metavar="X")] = None,
    repeat: Annotated[int | None, typer.Option(help="Repeat each trial N times.", metavar="N", min=1)] = None,
    duration: Annotated[str | None, typer.Option(help="Length of the measure phase, like 30s.")] = None,
    warmup: Annotated[str | None, typer.Option(help="Length of the warm-up, like 2s.")] = None,
    devices: Annotated[
        int | None, typer.Option(help="URLs: virtual devices.", min=1, rich_help_panel=LOAD)
    ] = None,
    rate: Annotated[
        str | None, typer.Option(help="URLs: flows (udp: datagrams) per second.", rich_help_panel=LOAD)
    ] = None,
    interval: Annotated[
        str | None, typer.Option(help="URLs: time between messages of a device.", rich_help_panel=LOAD)
    ] = None,
    count: Annotated[int | None, typer.Option(help="URLs: messages per flow.", rich_help_panel=LOAD)] = None,
    qos: Annotated[
        int | None, typer.Option(help="MQTT: quality of service.", min=0, max=2, rich_help_panel=LOAD)
    ] = None,
    size: Annotated[str | None, typer.Option(help="URLs: bytes of payload.", rich_help_panel=LOAD)] = None,
    open_loop: Annotated[
        bool | None,
        typer.Option(
            "--open/--closed",
            help="URLs: flows at given times, or one after the other.",
            rich_help_panel=LOAD,
        ),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(help="URLs: local address or range to send from.", rich_help_panel=LOAD),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="URLs: accept any certificate.", rich_help_panel=LOAD)
    ] = False,
    capture: Annotated[bool, typer.Option("--capture", help="Keep packets for Wireshark.")] = False,
    capture_filter: Annotated[
        str | None, typer.Option(help="Which packets, as in pcap-filter(7).", metavar="FILTER")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Result as one JSON document on stdout.", rich_help_panel=OUTPUT)
    ] = False,
    json_stream: Annotated[
        bool, typer.Option("--json-stream", help="Events as NDJSON on stdout.", rich_help_panel=OUTPUT)
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="Copy the report here.", metavar="FILE", rich_help_panel=OUTPUT)
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(help="Verdict for CI servers.", metavar="FILE", rich_help_panel=OUTPUT)
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Copy series and flows here.", metavar="DIR", rich_help_panel=OUTPUT)
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(help="Serve metrics, or write them.", metavar="ADDR:PORT|FILE", rich_help_panel=OUTPUT),
    ] = None,
    runs: Annotated[
        Path | None, typer.Option(help="Folder for run folders.", metavar="DIR", rich_help_panel=OUTPUT)
    ] = None,
    store: Annotated[bool, typer.Option(help="Enter the run into the store.", rich_help_panel=OUTPUT)] = True,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No live view.", rich_help_panel=OUTPUT)
    ] = False,
    socket: Annotated[
        Path | None, typer.Option(help="Use the daemon that serves this socket.", metavar="PATH")
    ] = None,
) -> None:
    """Run a load and judge what came of it.

    WHAT is a profile or experiment (JSON or YAML), the name of a preset (`netdyno describe` lists them), or
    one or more URLs.

        netdyno run mqtt://broker:1883 --devices 100 --qos 1
        netdyno run http://10.0.0.2/512 --rate 1000/s --duration 30s
        netdyno run ping://10.0.0.2 udp://10.0.0.2:7 --interval 10ms
        netdyno run iot-mixed --target broker=mqtt://10.0.0.2 --load 2 --repeat 5
        netdyno run mine.yaml --json --junit verdict.xml
    """
    options = quick.Quick(devices, rate, interval, count, qos, size, open_loop, tuple(source or ()), insecure)
    wanted, base = choose(what, options)
    for option, text in (("--duration", duration), ("--warmup", warmup)):
        if text is not None and not re.fullmatch(r"[0-9._]+ *(ns|us|µs|ms|s|min|h)", text.strip()):
            raise Error("ND-104-04", f"{text!r} is not a length of time", at=option, fix="Write it like 30s")
    trial = {"load": load, "measure": duration, "warmup": warmup}
    wanted = adjust(wanted, base, trial, _pairs(target or []), repeat, _capture(capture, capture_filter))
    outputs = Outputs(json, json_stream, html, junit, csv, prometheus, runs, quiet, store)
    raise typer.Exit(execute(wanted, base, outputs, socket))


def choose(what: list[str], options: quick.Quick) -> tuple[Experiment, Path]:
    """The experiment that is meant, and the folder its files are relative to."""
    here = Path()
    if any(quick.is_url(one) for one in what):
        if others := [one for one in what if not quick.is_url(one)]:
            raise Error(
                "ND-104-22", "URLs and files cannot be run together", at=others[0], fix="Run one at a time"
            )
        return _wrap(quick.profile(what, options)), here
    if options != quick.Quick():
        raise Error(
            "ND-104-07",
            "--devices, --rate and their like are for URLs; a profile says them itself",
            at=what[0],
            fix="Use --load, --duration or --target, or edit the profile",
        )
    if len(what) > 1:
        raise Error("ND-104-22", "only one file or preset can be run at a time", at=" ".join(what))
    name = what[0]
    if Path(name).suffix in (".json", ".yaml", ".yml") or "/" in name:
        data = config.read(Path(name))
        if experiment.is_experiment(data):
            return experiment.load(data, name), Path(name).parent
        if not isinstance(data, dict):
            raise Error("ND-104-04", "it is neither a profile nor an experiment", at=name)
        return _wrap(data), Path(name).parent
    if name in presets.experiments() and name not in presets.profiles():
        path = presets.experiment(name)
        return experiment.load(config.read(path), str(path)), path.parent
    return _wrap(presets.profile(name)), here


def _wrap(profile: dict[str, Any]) -> Experiment:
    """A profile as an experiment of one leg."""
    transport = profile.get("transport")
    leg = next(iter(transport)) if isinstance(transport, dict) and transport else "sockets"
    name = str(profile.get("name") or "profile")
    if not experiment.is_name(name):
        # what is wrong with it is for the core to say, as with all else in a profile
        name = "profile"
    return experiment.load({"name": name, "legs": [{"name": leg, "profile": profile}]}, name)


def adjust(
    wanted: Experiment,
    base: Path,
    trial: dict[str, Any],
    targets: dict[str, str],
    repeat: int | None,
    capture: dict[str, str] | None,
) -> Experiment:
    """The experiment with what the command line changes."""
    plain = wanted.model_dump(by_alias=True, exclude_none=True)
    if repeat:
        plain["repeat"] = repeat
    for leg in plain["legs"]:
        leg["trial"] = leg.get("trial", {}) | {k: v for k, v in trial.items() if v is not None}
        profile = dict(experiment.resolve_profile(leg["profile"], base))
        if capture is not None:
            profile["capture"] = dict(profile.get("capture") or {}) | capture
        leg["profile"] = profile
        known = set(profile.get("targets") or {}) | {g.get("target") for g in profile.get("groups") or []}
        if unknown := targets.keys() - known:
            names = ", ".join(sorted(str(name) for name in profile.get("targets") or {})) or "none"
            what = f"the profile has no target {sorted(unknown)[0]!r}"
            raise Error("ND-104-26", what, at="--target", fix=f"It has: {names}")
        leg["targets"] = leg.get("targets", {}) | targets
    return experiment.load(plain, wanted.name)


def _pairs(texts: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, url = text.partition("=")
        if not equals or "://" not in url:
            raise Error(
                "ND-104-22", f"{text!r} is not NAME=URL", at="--target", fix="Like broker=mqtt://10.0.0.2"
            )
        found[name] = url
    return found


def _capture(on: bool, text: str | None) -> dict[str, str] | None:
    if text is not None:
        return {"filter": text}
    return {} if on else None
