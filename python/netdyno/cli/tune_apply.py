"""`netdyno tune apply`: put a setting in force, and take it back."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from netdyno.cli import console, values
from netdyno.cli.execute import put_back
from netdyno.cli.tune_params import need_namespace, need_root
from netdyno.errors import Error
from netdyno.interrupt import Interrupts
from netdyno.stats.units import seconds
from netdyno.tuning import here, keep, owners, service
from netdyno.tuning.apply import Applied
from netdyno.tuning.apply import apply as put
from netdyno.tuning.plan import Change, Plan, plan
from netdyno.tuning.registry import registry


def apply(
    setting: Annotated[
        str | None,
        typer.Argument(
            metavar="[SETTING]",
            help="A file of names and values, or a known setting like paper-latency.",
            autocompletion=values.known_setting,
        ),
    ] = None,
    single: Annotated[
        list[str] | None, typer.Option("--set", help="One parameter; again for more.", metavar="NAME=VALUE")
    ] = None,
    service_class: Annotated[
        str | None,
        typer.Option(
            "--class",
            help="The setting known for a class of service.",
            metavar="CLASS",
            autocompletion=values.service_class,
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(help="In a network namespace, as of a device under test.", metavar="NAMESPACE"),
    ] = None,
    allow_global: Annotated[
        bool, typer.Option("--global", help="Also what holds for the whole machine.")
    ] = False,
    keep_it: Annotated[
        bool, typer.Option("--keep", help="Let it last, over the next boot too, and return.")
    ] = False,
    length: Annotated[
        str | None,
        typer.Option(
            "--for", help="Take it back after so long.", metavar="TIME", parser=values.time("--for")
        ),
    ] = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was changed as JSON.")] = False,
) -> None:
    """Put kernel parameters in force until Ctrl-C, and then put back what was.

    Only what differs is written, in an order in which every moment makes sense, and what the kernel makes of
    it is read back. What was is on disk before the first write: it is put back on Ctrl-C, by a watchdog
    should netdyno be killed, and by the next start or `netdyno restore` otherwise. Needs root.

    What holds for the whole machine is refused without --global; of a known setting or a class it is left
    out, with what this machine does not have.

        sudo netdyno tune apply --class latency --where web --dry-run

        sudo netdyno tune apply --set net.core.somaxconn=8192 --set net.ipv4.tcp_rmem='4096 131072 64MiB'

        sudo netdyno tune apply mine.yaml --global --keep
    """
    if keep_it and length:
        raise Error("ND-104-07", "what is kept is not taken back", at="--keep and --for", fix="Leave one out")
    need_namespace(where)
    if not dry:
        need_root("setting kernel parameters")
        put_back()
    planned = _planned(setting, single or [], service_class, where, allow_global)
    if keep_it:
        keep.check(planned)
    for line in _remarks(planned):
        console.note(line)
    if dry or not planned.steps:
        _show(planned, planned.changes, as_json, "would become" if dry else "")
        return
    if keep_it:
        _keep(planned, as_json)
        return
    with Interrupts().installed() as interrupts, interrupts.asking():
        with interrupts.shielded():
            applied = put(planned, watched=True)
        try:
            _show(planned, applied.changes, as_json, "is now")
            console.note("Ctrl-C puts it back")
            end = time.monotonic() + seconds(length) if length else float("inf")
            while not interrupts.count and time.monotonic() < end:
                time.sleep(min(0.1, max(0.0, end - time.monotonic())))
        finally:
            with interrupts.shielded():
                applied.restore()
    console.note("everything is as it was")


def _keep(planned: Plan, as_json: bool) -> None:
    with Interrupts().installed() as interrupts, interrupts.shielded():
        applied: Applied = put(planned, watched=True)
        try:
            written = keep.keep(applied)
        except BaseException:
            applied.restore()
            raise
        _show(planned, applied.changes, as_json, "is now")
    for path in written:
        console.note(f"wrote {path}; `netdyno tune restore` takes it back")


def _planned(
    setting: str | None, single: list[str], service_class: str | None, where: str | None, allow_global: bool
) -> Plan:
    known = registry()
    chosen = setting
    if service_class:
        if setting:
            what = "both are settings"
            raise Error("ND-104-07", what, at=f"{setting} and --class", fix="Give one of them")
        chosen = service.read(service_class).setting
        if not chosen:
            raise Error(
                "ND-104-07", "no setting is known for it", at=service_class, fix="Give --set, or a file"
            )
    written: dict[str, Any] = dict(service.known(chosen).values) if chosen else {}
    exact: dict[str, Any] = {}
    for text in single:
        name, equals, value = text.partition("=")
        if not equals:
            raise Error("ND-104-04", f"{text!r} is not NAME=VALUE", at="--set", fix="Write it like that")
        exact[name.strip()] = value.strip()
    if not written and not exact:
        raise Error("ND-104-22", "there is nothing to set", fix="Give a setting, --set or --class")
    devices = here.devices(where)
    # what was named one by one is not left out
    asked = service.on_devices(known, exact, devices)
    general = service.on_devices(known, written, devices)
    optional = general.keys() - asked.keys() if chosen in service.settings() else frozenset()
    return plan(general | asked, where, allow_global=allow_global, optional=optional, known=known)


def _remarks(planned: Plan) -> list[str]:
    found = [f"left out: {why}" for why in planned.left_out.values()]
    found += planned.advice
    parameters = [s.target.path for s in planned.steps if s.where is None and s.target.kind == "sysctl"]
    found += [f"drift: {one}" for one in owners.drift(parameters)]
    return found


def _show(planned: Plan, changes: tuple[Change, ...] | list[Change], as_json: bool, word: str) -> None:
    with console.heard():
        if as_json:
            done = [
                {"name": c.name, "old": c.old, "new": c.new, "got": c.got, "rounded": c.rounded}
                for c in changes
            ]
            console.document(planned.document() | {"changes": done, "remarks": _remarks(planned)})
        elif not changes:
            console.out().print("nothing to change: everything has its value already")
        else:
            rows = [
                (c.name, c.old, c.new if c.got is None else c.got,
                 f"the kernel made {c.got} of {c.new}" if c.rounded else "")
                for c in changes
            ]  # fmt: skip
            console.table(("parameter", "was" if word == "is now" else "is", word, ""), rows,
                          right=("was", "is", word))  # fmt: skip
