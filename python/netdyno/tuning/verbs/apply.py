"""`netdyno tune apply`: apply a setting, and restore the old values."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer

from netdyno import assignments
from netdyno.cli import console, values
from netdyno.cli.execute import put_back
from netdyno.errors import Error
from netdyno.system.interrupt import Interrupts
from netdyno.tuning import host_state, owners, persist, service
from netdyno.tuning import study_setting as chosen_by
from netdyno.tuning.apply import AppliedSetting
from netdyno.tuning.apply import apply as put
from netdyno.tuning.dry_run import dry_run
from netdyno.tuning.plan import OF_MACHINE, Change, Plan, plan
from netdyno.tuning.registry import NAMES, registry
from netdyno.tuning.service import WrittenSetting
from netdyno.tuning.verbs import completion, place
from netdyno.tuning.verbs.options import SEVERAL
from netdyno.tuning.verbs.params import need_root
from netdyno.units import seconds


def apply(
    setting: Annotated[
        str | None,
        typer.Argument(
            metavar="[SETTING]",
            help="A study, a known setting like paper-latency, NAME=VALUE,…, or a file: names and values, "
            "sysctl.d, TuneD.",
            autocompletion=completion.setting_or_study,
        ),
    ] = None,
    single: Annotated[
        list[str] | None, typer.Option("--set", help=f"{SEVERAL}.", metavar="NAME=VALUE,…")
    ] = None,
    service_class: Annotated[
        str | None,
        typer.Option(
            "--class",
            help="The setting known for a class of service.",
            metavar="CLASS",
            autocompletion=completion.service_class,
        ),
    ] = None,
    best: Annotated[
        str | None,
        typer.Option("--best", help="Of a study with several objectives: best for this.", metavar="METRIC"),
    ] = None,
    unproven: Annotated[
        bool, typer.Option("--unproven", help="Apply a study's setting even if it was not proven.")
    ] = False,
    contradicted: Annotated[
        bool,
        typer.Option("--contradicted", help="Apply a study's setting even if none of its counters moved."),
    ] = False,
    where: Annotated[
        str | None,
        typer.Option(help=f"Apply it there: {place.HELP}; default: here.", metavar=place.METAVAR),
    ] = None,
    allow_global: Annotated[
        bool, typer.Option("--global", help="Also parameters of the whole machine, not of a namespace.")
    ] = False,
    keep_it: Annotated[
        bool,
        typer.Option(
            "--keep", help="Make it persistent across reboots, beside what is kept already, and return."
        ),
    ] = False,
    length: Annotated[
        str | None,
        typer.Option(
            "--for",
            help="Restore the old values after this time.",
            metavar="TIME",
            parser=values.time("--for"),
        ),
    ] = None,
    dry: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change, and what the kernel would refuse.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was changed as JSON.")] = False,
) -> None:
    """Apply kernel parameters until Ctrl-C, then restore the old values.

    A study is named, or given as its file or the folder of its run: its winning setting is applied. A setting
    that was not proven better, or only on a simulation, is refused without --unproven; one that is better
    although none of the counters moved by which it works, without --contradicted.

    Only values that differ are written, in an order that is valid at every step (a minimum before its
    maximum), and each is read back. The old values are on disk before the first write: they are restored on
    Ctrl-C, by a watchdog if netdyno is killed, else by the next start or `netdyno restore`. Needs root.

    Parameters of the whole machine are refused without --global; from a known setting or a class they are
    skipped, like those that this kernel lacks. Of a file of sysctl.d or of a TuneD profile, what netdyno does
    not tune is named and left out.

        sudo netdyno tune apply --class latency --where web --dry-run

        sudo netdyno tune apply --set net.core.somaxconn=8192 --set net.ipv4.tcp_rmem='4096 131072 64MiB'

        sudo netdyno tune apply mine.yaml --global --keep

        sudo netdyno tune apply /etc/sysctl.d/90-mine.conf --global --dry-run

        sudo netdyno tune apply search-iperf3-tcp-3f2a61bc --where web --for 10min
    """
    if keep_it and length:
        raise Error(
            "ND-104-07", "a persistent setting has no end", at="--keep and --for", fix="Leave one out"
        )
    where = place.namespace_of(where)
    if not dry:
        need_root("setting kernel parameters")
        put_back()
    chosen = written(setting, service_class, best, unproven, contradicted)
    planned = planned_for(chosen, single or [], where, allow_global)
    if keep_it:
        persist.check(planned)
    if fault := nothing_set(planned):
        raise fault
    for line in remarks(planned):
        console.note(line)
    for conflict in persist.conflicts(planned) if keep_it else ():
        console.note(f"conflict: {conflict}")
    if dry:
        tried = dry_run(planned)
        if tried.unknown:
            console.note(
                f"known only when it is written, whether the kernel takes it: {', '.join(tried.unknown)}"
            )
        _show(planned, tried.changes, as_json, "would become", tried.unknown)
        return
    if not (planned.steps or (keep_it and planned.held)):
        _show(planned, planned.changes, as_json, "")
        return
    if keep_it:
        _keep(planned, as_json)
        return
    with Interrupts().installed() as interrupts, interrupts.asking():
        with interrupts.shielded():
            applied = put(planned, watched=True)
        try:
            _show(planned, applied.changes, as_json, "is now")
            console.note("Ctrl-C restores the old values")
            end = time.monotonic() + seconds(length) if length else float("inf")
            while not interrupts.count and time.monotonic() < end:
                time.sleep(min(0.1, max(0.0, end - time.monotonic())))
        finally:
            with interrupts.shielded():
                applied.restore()
    console.note("old values restored")


def _keep(planned: Plan, as_json: bool) -> None:
    with Interrupts().installed() as interrupts, interrupts.shielded():
        applied: AppliedSetting = put(planned, watched=True)
        try:
            written = persist.persist(applied)
        except BaseException:
            applied.restore()
            raise
        _show(planned, applied.changes, as_json, "is now")
    if not written:
        console.note("all of it is kept already")
    for path in written:
        console.note(f"wrote {path}; `netdyno tune restore` undoes it")


def written(
    setting: str | None, service_class: str | None, best: str | None, unproven: bool, contradicted: bool
) -> WrittenSetting:
    """The setting that was named: a study's, a known one, a file's, or that of a class."""
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
    of_study = chosen not in service.settings() and chosen is not None
    study = chosen_by.study(str(chosen)) if of_study else None
    if study is None:
        said = {"--best": best, "--unproven": unproven, "--contradicted": contradicted}
        if wrong := next((name for name, given in said.items() if given), None):
            what, fix = "it says something of a study", "Name a study, or leave it out"
            raise Error("ND-104-07", what, at=wrong, fix=fix)
        return service.written(chosen, registry()) if chosen else WrittenSetting({})
    one = chosen_by.winner(study, best, unproven=unproven, contradicted=contradicted)
    state = (
        f"proven over {one.pairs} pairs on {study['bench']}"
        if not one.objection
        else f"not proven: {one.objection}"
    )
    if one.proven and one.contradicted:
        console.note(
            "warning: none of its counters moved as would explain it: something else may be the cause"
        )
    best_for = f"best for {one.metric}, " if one.metric else ""
    console.note(f"{study['name']}: {best_for}{state}")
    return WrittenSetting(one.setting)


def planned_for(setting: WrittenSetting, single: list[str], where: str | None, allow_global: bool) -> Plan:
    """What a setting and single parameters change in a place."""
    known, written = registry(), setting.values
    exact = assignments.read(single, "--set")
    if not written and not exact:
        raise Error("ND-104-22", "there is nothing to set", fix="Give a setting, --set or --class")
    devices = host_state.devices(where)
    # what was named one by one is not left out
    asked = service.on_devices(known, exact, devices)
    general = service.on_devices(known, written, devices)
    optional = service.optional(known, setting, devices) - asked.keys()
    planned = plan(general | asked, where, allow_global=allow_global, optional=optional, known=known)
    return replace(planned, left_out={**planned.left_out, **_foreign(setting, devices, exact, where)})


def _foreign(
    setting: WrittenSetting, devices: list[str], exact: Mapping[str, Any], where: str | None
) -> dict[str, str]:
    """What was never planned: what netdyno does not tune, and what is of devices where there are none, or of
    those whose names it does not take."""
    found = {name: f"{name}: {why}" for name, why in setting.left_out.items()}
    of_devices = [name for name in (*setting.values, *exact) if name.startswith("dev.*.")]
    for odd in host_state.odd_devices(where) if of_devices else ():
        found[odd] = f"the device {odd!r}: {NAMES['device']}"
    none = [name for name in of_devices if not devices]
    return found | {name: f"{name}: there is no device but loopback here" for name in none}


def nothing_set(planned: Plan) -> Error | None:
    """The error of a setting of which nothing could be set; None where all of it has its value already."""
    if planned.steps or planned.same or not planned.left_out:
        return None
    reasons: dict[str, list[str]] = {}
    for name, why in planned.left_out.items():
        reasons.setdefault(why.removeprefix(name).lstrip(": "), []).append(name)
    count = len(planned.left_out)
    if [*reasons] == [OF_MACHINE]:
        whom = f"all {count} parameters hold" if count > 1 else f"{next(iter(planned.left_out))} holds"
        what, fix = f"nothing was set: {whom} for the whole machine", "Add --global if that is meant"
    else:
        each = "; ".join(f"{', '.join(names)}: {why}" for why, names in reasons.items())
        what, fix = f"nothing was set: {each}", "`netdyno tune params` shows what can be set here"
        if OF_MACHINE in reasons:
            fix = "Add --global for those of the whole machine"
    return Error("ND-104-43", what, fix=fix)


def remarks(planned: Plan) -> list[str]:
    """What one should know of a plan: what it leaves out, advice, and files that say otherwise."""
    found = [f"left out: {why}" for why in planned.left_out.values()]
    found += planned.advice
    parameters = [s.target.path for s in planned.steps if s.where is None and s.target.kind == "sysctl"]
    found += [f"drift: {one}" for one in owners.drift(parameters)]
    return found


def _show(
    planned: Plan,
    changes: tuple[Change, ...] | list[Change],
    as_json: bool,
    word: str,
    unknown: tuple[str, ...] = (),
) -> None:
    with console.tolerate_closed_stdout():
        if as_json:
            done = [
                {"name": c.name, "old": c.old, "new": c.new, "got": c.got, "rounded": c.rounded}
                for c in changes
            ]
            more = {"unknown": list(unknown)} if unknown else {}
            console.document(planned.document() | {"changes": done, "remarks": remarks(planned)} | more)
        elif not changes:
            whole = "everything" if not planned.left_out else "what can be set"
            console.out().print(f"nothing to change: {whole} has its value already")
        else:
            makes = "made" if word == "is now" else "makes"
            rows = [
                (c.name, c.old, c.new if c.got is None else c.got,
                 f"the kernel {makes} {c.got} of {c.new}" if c.rounded else "")
                for c in changes
            ]  # fmt: skip
            console.table(("parameter", "was" if word == "is now" else "is", word, ""), rows,
                          right=("was", "is", word))  # fmt: skip
