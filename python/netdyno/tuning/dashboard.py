"""Tuning on the dashboard: parameters here, studies and watches; what they found is applied and undone."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from netdyno import files, paths
from netdyno.cli.restore import replay
from netdyno.errors import Error
from netdyno.stats.winner import KINDS, Winner
from netdyno.store import Store
from netdyno.system import namespace, proc, python
from netdyno.tuning import host_state, owners, persist, running_watch
from netdyno.tuning import study_setting as chosen_by
from netdyno.tuning.plan import Plan
from netdyno.tuning.registry import registry
from netdyno.tuning.running_watch import RunningWatch
from netdyno.tuning.service import WrittenSetting
from netdyno.tuning.verbs import apply as verb
from netdyno.tuning.verbs.params import need_root, parameter_range
from netdyno.tuning.verbs.params import remarks as parameter_remarks
from netdyno.tuning.verbs.restore import ours
from netdyno.units import seconds

STUDIES = ("screen", "search", "compare", "learn", "reproduce")
BEGIN = 30.0
"""Seconds within which a setting is in force."""
APPLY = ("tune", "apply")
OF_STUDY, OF_WATCH = ("run", "where", "global"), ("watch", "finding", "global")
"""What names something to apply."""


def params(asked: Mapping[str, str]) -> dict[str, Any]:
    """Parameters whose name has a text: value here, Linux default, and what is set at the next boot."""
    _known(asked, "find")
    known, wanted = registry(), asked.get("find", "").strip()
    names = [name for name in host_state.names(known, host_state.devices(None)) if wanted in name]
    boot = owners.configured()
    found = []
    for name, one in host_state.read_states(known, names).items():
        if one.state == "missing":
            continue
        access = one.tunable.access
        path, says = boot.get(access.path, (None, None)) if access.kind == "sysctl" else (None, None)
        found.append({
            "name": name, "value": one.value, "default": one.tunable.default, "about": one.tunable.summary,
            "range": parameter_range(one), "remarks": parameter_remarks(one),
            "boot": says, "file": str(path) if path else None,
        })  # fmt: skip
    return {"params": found}


def studies(asked: Mapping[str, str]) -> dict[str, Any]:
    """Studies of settings in the store, what is in force now, and whether anything may be set."""
    _known(asked)
    with Store() as store:
        rows = [one for one in store.rows() if one.kind in STUDIES]
    listed = [
        {"run": one.id, "name": one.name, "kind": one.kind, "state": one.state, "started": one.started,
         "finding": one.finding, "applies": one.state == "done" and one.kind in KINDS}
        for one in rows
    ]  # fmt: skip
    kept = [str(path) for path in persist.kept()]
    return {"studies": listed, "in_force": _in_force(), "kept": kept, "root": os.geteuid() == 0}


def watches(asked: Mapping[str, str]) -> dict[str, Any]:
    """Watches under way with what they found, latest first, and what is in force now."""
    _known(asked)
    listed = []
    for one in running_watch.running() if os.geteuid() == 0 else ():
        findings = [
            asdict(finding) | {"command": finding.command(one.called or one.where)}
            for finding in reversed(one.findings)
        ]
        listed.append(asdict(one) | {"findings": findings})
    return {"watches": listed, "in_force": _in_force(), "root": os.geteuid() == 0}


@dataclass(frozen=True)
class _Asked:
    """What a request is to apply, and where."""

    setting: WrittenSetting
    single: list[str]
    where: str | None
    words: list[str]
    """Arguments of `netdyno tune apply` that name it."""
    about: dict[str, Any]

    def planned(self, everywhere: bool) -> Plan:
        return verb.planned_for(self.setting, self.single, self.where, everywhere)


def preview(body: Mapping[str, Any]) -> dict[str, Any]:
    """What applying a study's setting, or a watch's finding, would change; nothing is changed."""
    _known(body, *(OF_WATCH if "watch" in body else OF_STUDY))
    chosen = _chosen(body)
    planned = chosen.planned(body.get("global") is True)
    return planned.document() | {"remarks": verb.remarks(planned)} | chosen.about


def apply(body: Mapping[str, Any]) -> dict[str, Any]:
    """Apply it by `netdyno tune apply`, in a process of its own that undoes it."""
    _known(body, *(OF_WATCH if "watch" in body else OF_STUDY), "for")
    need_root("setting kernel parameters")
    planned = preview({key: value for key, value in body.items() if key != "for"})
    if not planned["changes"]:
        raise Error("ND-104-07", "all of it is as the setting says already", fix="There is nothing to apply")
    chosen, length = _chosen(body), str(body.get("for") or "")
    words = list(chosen.words)
    if chosen.where:
        words += ["--where", chosen.where]
    if body.get("global") is True:
        words.append("--global")
    if length:
        seconds(length)
        words += ["--for", length]
    log = files.make_folder(paths.state() / "web", private=True) / f"{secrets.token_hex(8)}.log"
    with files.open_private(log, "wb") as sink:
        process = subprocess.Popen(
            python.module("netdyno", *APPLY, *words, "--json"),
            stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True,
        )  # fmt: skip
    threading.Thread(target=_follow, args=(process, log), daemon=True).start()
    until = time.monotonic() + BEGIN
    while time.monotonic() < until and process.poll() is None:
        if any(one["process"] == process.pid for one in _in_force()) and b'"changes"' in log.read_bytes():
            return {"process": process.pid, "changes": planned["changes"]}
        time.sleep(0.1)
    said = log.read_text(errors="replace").splitlines() if log.is_file() else []
    what = next((line for line in reversed(said) if line.startswith("ND-")), " | ".join(said[-3:]))
    raise Error(
        "ND-92-33", f"the setting is not in force: {what or 'no word of why'}", at=" ".join(chosen.words)[:80]
    )


def undo(body: Mapping[str, Any]) -> dict[str, Any]:
    """End a process that holds a setting: it puts back what was."""
    _known(body, "process")
    pid = body.get("process")
    held = [one for one in _in_force() if one["process"] == pid]
    if not held or not held[0]["applied"]:
        fix = "See what is in force: only what `netdyno tune apply` holds is undone here"
        raise Error("ND-104-11", f"no process {pid} of netdyno tune apply holds a setting", fix=fix)
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(str(pid)), signal.SIGINT)
    until = time.monotonic() + BEGIN
    while any(one["process"] == pid for one in _in_force()):
        if time.monotonic() > until:
            raise Error("ND-92-31", f"process {pid} has not put everything back", fix="See `netdyno restore`")
        time.sleep(0.1)
    return {"undone": [one["parameter"] for one in held]}


def stop(body: Mapping[str, Any]) -> dict[str, Any]:
    """End a watch: it puts back what it has set."""
    _known(body, "watch")
    one = _watch(body)
    start = proc.start_time(one.pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(one.pid, signal.SIGINT)
    until = time.monotonic() + BEGIN
    while proc.alive(one.pid, start):
        if time.monotonic() > until:
            raise Error(
                "ND-92-31", f"process {one.pid} has not put everything back", fix="See `netdyno restore`"
            )
        time.sleep(0.1)
    return {"stopped": one.id}


def restore(body: Mapping[str, Any]) -> dict[str, Any]:
    """Undo what was made persistent and what killed processes left, as `netdyno tune restore` does."""
    _known(body)
    need_root("setting kernel parameters")
    report = replay(ours, False)
    return {"undone": report.undone, "failed": report.failed, "left": report.left, "gone": report.gone}


def _in_force() -> list[dict[str, Any]]:
    """What living processes of ours have set, and by which command."""
    return [
        {"process": pid, "parameter": entry["words"], "where": entry.get("where"), "applied": _is_apply(pid),
         "before": entry.get("saved"), "now": entry.get("made")}
        for pid, entry in owners.changes_in_force(paths.state() / "journal")
    ]  # fmt: skip


def _is_apply(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    return any(tuple(words[at : at + 2]) == APPLY for at in range(len(words)))


def _chosen(body: Mapping[str, Any]) -> _Asked:
    if "watch" not in body:
        won, folder = _winner(body)
        about = {"metric": won.metric, "pairs": won.pairs, "contradicted": won.contradicted}
        return _Asked(WrittenSetting(won.setting), [], _where(body), [str(folder)], about)
    watch = _watch(body)
    found = next((one for one in watch.findings if one.number == body.get("finding") and one.setting), None)
    if found is None:
        fix = "Choose one of the list that has a command"
        raise Error("ND-104-28", "the watch has no such finding to apply", at=watch.id, fix=fix)
    if found.held:
        raise Error("ND-104-07", "the watch has set it itself", at=watch.id, fix="There is nothing to apply")
    words = running_watch.arguments(found.setting)
    about = {"metric": "", "pairs": 0, "contradicted": False}
    return _Asked(WrittenSetting({}), words[1::2], watch.where, words, about)


def _watch(body: Mapping[str, Any]) -> RunningWatch:
    """A watch that runs, as it is named."""
    need_root("looking at what a watch sees")
    wanted = body.get("watch")
    one = next((one for one in running_watch.running() if one.id == wanted), None)
    if one is None:
        raise Error("ND-104-28", "it does not run any more", at=str(wanted)[:80], fix="Choose another one")
    return one


def _winner(body: Mapping[str, Any]) -> tuple[Winner, Path]:
    """The proven setting of a study in the store."""
    run = str(body.get("run") or "")
    with Store() as store:
        row = next((one for one in store.rows() if one.id == run and one.kind in KINDS), None)
    study = chosen_by.study(row.folder) if row else None
    if row is None or study is None:
        fix = "Choose a search or a comparison of the list"
        raise Error("ND-104-25", "there is no such study with a setting to apply", at=run[:80], fix=fix)
    return chosen_by.winner(study), Path(row.folder)


def _where(body: Mapping[str, Any]) -> str | None:
    """A network namespace by its name; None is here."""
    where = str(body.get("where") or "")
    if where and where not in namespace.names():
        fix = f"Network namespaces: {', '.join(namespace.names()) or 'none'}"
        raise Error("ND-104-04", f"{where[:80]!r} is no network namespace", at="where", fix=fix)
    if where and os.geteuid() != 0:
        raise Error(
            "ND-92-22", "looking into a network namespace needs root", at="where", fix="Start it with sudo"
        )
    return where or None


def _follow(process: subprocess.Popen[bytes], log: Path) -> None:
    process.wait()
    time.sleep(5.0)
    with contextlib.suppress(OSError):
        log.unlink()


def _known(asked: Mapping[str, Any], *keys: str) -> None:
    if unknown := sorted(asked.keys() - set(keys)):
        fix = f"There are {', '.join(keys)}" if keys else "Leave it out"
        raise Error("ND-104-10", f"there is no parameter {unknown[0][:80]!r}", fix=fix)
