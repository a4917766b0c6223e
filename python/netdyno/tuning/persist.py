"""Make a setting last over the next boot, on purpose: a file of sysctl.d, and rules of udev for devices."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from netdyno import files, paths
from netdyno.errors import Error
from netdyno.stats.observation import Value
from netdyno.system import namespace
from netdyno.tuning import access, owners
from netdyno.tuning.access.qdisc import OURS
from netdyno.tuning.apply import AppliedSetting
from netdyno.tuning.plan import Plan, Step

ETC = Path("/etc")
SYSCTL = "sysctl.d/netdyno-tune.conf"
FILES = ("sysfs", "device_napi")
"""Ways to files of a device."""
UDEV = "udev/rules.d/netdyno-tune.rules"
"""Letters come after digits: these are read last, so that they hold."""
OF_FIRST = Path("/proc/sys/net/core/netdev_budget")
"""A parameter that the kernel shows in its first network namespace only."""
_NAME = re.compile(r"(sysctl\.d/netdyno-tune(-\d+)?\.conf)|(rules\.d/netdyno-tune(-\d+)?\.rules)")
_HEAD = "# Written by `netdyno tune apply --keep`; `netdyno tune restore` takes it away again.\n"


def kept(etc: Path = ETC) -> list[Path]:
    """The files that are there: each `--keep` has files of its own, so that what comes later adds to it."""
    there = [path for name in (SYSCTL, UDEV) for path in sorted((etc / name).parent.glob("*"))]
    return [path for path in there if is_kept(path)]


def is_kept(path: Path) -> bool:
    """Whether a file is one that we write, by its name."""
    return bool(_NAME.fullmatch(f"{path.parent.name}/{path.name}"))


def _free(name: str, etc: Path) -> Path:
    """A file of that name, or with the first number that is free."""
    first = etc / name
    later = (first.with_stem(f"{first.stem}-{number}") for number in itertools.count(2))
    return next(path for path in itertools.chain([first], later) if not path.exists())


def check(plan: Plan) -> None:
    """Raise when the setting cannot be made to last."""
    if plan.where is not None:
        what = f"the namespace {plan.where} does not outlive a boot, and no file is read for it"
        raise Error("ND-104-07", what, at="--keep", fix="Leave out --keep, or --where")
    if in_other_namespace():
        what = "the namespace that it runs in does not outlive a boot, and no file is read for it"
        fix = "Leave out --keep, or run it in the machine's own namespace"
        raise Error("ND-104-07", what, at="--keep", fix=fix)
    if step := next(
        (step for step in (*plan.steps, *plan.held) if step.target.kind in access.NOT_KEPT), None
    ):
        what, instead = access.NOT_KEPT[step.target.kind]
        fix = f"{instead}, or apply it without --keep"
        raise Error("ND-104-07", what, at=step.changes[0].name, fix=fix)
    for step in plan.steps:
        if entry := _kept_entry(step):
            at = ", ".join(sorted(change.name for change in step.changes))
            command = owners.restore_command(entry.get(owners.STATE)).replace("netdyno ", "netdyno tune ")
            fix = f"Take what is kept back first: {command}"
            raise Error("ND-104-07", "another value is kept already", at=at, fix=fix)


def _kept_entry(step: Step) -> dict[str, Any] | None:
    """What the journal says of it, where it is kept already."""
    names = {change.name for change in step.changes}
    held = (entry for _, entry in owners.changes(paths.state() / "journal", ("tunable_kept",)))
    # a line of sysctl.d has all numbers of a parameter
    return next(
        (
            one
            for one in held
            if owners.same(owners.place(step), one)
            and (step.target.kind == "sysctl" or names & {*one["names"].values()})
        ),
        None,
    )


def _without_kept(plan: Plan) -> Plan:
    """The plan without what has its value because it is kept already, or is in a line that is written."""
    lines = {step.target for step in plan.steps if step.target.kind == "sysctl"}
    return replace(plan, held=tuple(s for s in plan.held if s.target not in lines and not _kept_entry(s)))


def in_other_namespace() -> bool:
    """Whether we are in another network namespace than the process that started first here, whose files are
    read at boot; where that may not be looked at, whether ours is not the kernel's first."""
    first = "/proc/1/ns/net"
    try:
        Path(first).stat()
    except OSError:
        return not OF_FIRST.exists()
    return not namespace.is_ours(first)


def persist(applied: AppliedSetting, etc: Path = ETC) -> list[Path]:
    """Write the files for what is in force, and let it be; the files written."""
    plan, notes = _without_kept(applied.plan), applied.notes
    texts = {_free(SYSCTL, etc): sysctl(plan), _free(UDEV, etc): udev(plan)}
    written = [path for path, text in texts.items() if text]
    drafts = [notes.write("path", path=str(path)) for path in written]
    try:
        for path in written:
            files.make_folder(path.parent)
            files.write(path, _HEAD + texts[path], shared=True)
        for path in written:
            lines = (_HEAD + texts[path]).splitlines()
            drafts.append(notes.write("path", kept=True, path=str(path), lines=lines))
        applied.keep(*drafts[: len(written)], also=plan.held)
    except BaseException:
        notes.undo(*drafts)
        raise
    return written


def conflicts(plan: Plan, root: Path = owners.ROOT) -> list[owners.Conflict]:
    """Other files that set what is to be kept."""
    return owners.conflicts(parameters(plan), str(_free(SYSCTL, root / "etc").relative_to(root)), root)


def parameters(plan: Plan) -> dict[str, str]:
    """Each file of the kernel whole, with the numbers that are not changed."""
    found = {}
    for step in (*plan.steps, *plan.held):
        if step.target.kind == "sysctl":
            now = access.kind(step.target).read(step.target) | dict(step.values)
            found[step.target.path] = " ".join(str(now[key]) for key in sorted(now))
    return found


def sysctl(plan: Plan) -> str:
    """The lines of sysctl.d."""
    return "".join(f"{name} = {value}\n" for name, value in parameters(plan).items())


def udev(plan: Plan) -> str:
    """A rule for each change of a device, when the device appears."""
    return "".join(rule for step in (*plan.steps, *plan.held) if step.target.device for rule in _rules(step))


def _rules(step: Step) -> Iterator[str]:
    target, values = step.target, step.values
    match = f'ACTION=="add", SUBSYSTEM=="net", KERNEL=="{target.device}"'
    for action in _actions(target.kind, target.path, values):
        yield f"{match}, {action}\n"


def _actions(kind: str, path: str, values: Mapping[str, Value]) -> Iterator[str]:
    if kind in FILES and "*" not in path:
        yield f'ATTR{{{path}}}="{values[""]}"'
    elif kind in FILES:
        # the name of the device is %k, and a dollar sign is written twice
        yield f"RUN+=\"/bin/sh -c 'for f in /sys/class/net/%k/{path}; do echo {values['']} > $$f; done'\""
    elif kind == "link":
        word = {"txqlen": "txqueuelen"}.get(path, path)
        yield f'RUN+="/sbin/ip link set dev %k {word} {values[""]}"'
    elif kind == "qdisc":
        # by its handle it is known for ours, and put back
        yield f'RUN+="/sbin/tc qdisc replace dev %k root handle {OURS[0]} {values[""]}"'
    elif kind == "irq":
        each = "/sys/class/net/%k/device/msi_irqs/* /sys/class/net/%k/device/../msi_irqs/*"
        write = f"echo {values['']} > /proc/irq/$${{i##*/}}/smp_affinity"
        yield f"RUN+=\"/bin/sh -c 'for i in {each}; do {write}; done'\""
    elif kind == "rss":
        yield f'RUN+="/sbin/ethtool -X %k equal {values[""]}"'
    elif path == "feature":
        words = " ".join(f"{name} {value}" for key, value in values.items() for name in key.split())
        yield f'RUN+="/sbin/ethtool -K %k {words}"'
    else:
        option = {"ring": "-G", "coalesce": "-C", "channels": "-L"}[path]
        words = " ".join(f"{key.replace('_', '-')} {value}" for key, value in values.items())
        yield f'RUN+="/sbin/ethtool {option} %k {words}"'
