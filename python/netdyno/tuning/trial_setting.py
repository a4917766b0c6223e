"""What a bench sets for a trial: tunables, and the few other kernel parameters that it cannot do without."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from netdyno.errors import Error
from netdyno.stats.observation import Value
from netdyno.system import namespace, sysctl
from netdyno.system.journal import Journal
from netdyno.tuning import host_state, owners
from netdyno.tuning.apply import alone, apply
from netdyno.tuning.model import Scope
from netdyno.tuning.plan import plan
from netdyno.tuning.registry import DEVICE, PROCESS, registry


@contextmanager
def applied(
    values: Mapping[str, Value], space: str | None, allow_global: bool, notes: Journal, *, used: bool = False
) -> Iterator[None]:
    """Set values in a namespace; those of the whole machine only if allowed, and put back at the end.

    In a namespace that others use they are put back at once should this process be killed.
    """
    tunable = {name: value for name, value in values.items() if is_tunable(name)}
    with ExitStack() as stack:
        for name, value in values.items():
            if name not in tunable:
                _other(name, sysctl.checked(name, value), space, allow_global, notes, stack)
        if tunable:
            setting = registry().read(tunable)
            planned = plan(setting, space, allow_global=allow_global)
            # also where the values are there already: settings that are compared are to cost a trial the same
            stack.enter_context(apply(planned, notes, watched=used or any(map(of_machine, setting))))
        yield


def is_tunable(name: str) -> bool:
    """Whether the registry knows it, by its name or as one file of several numbers."""
    known = registry().tunables
    return (
        name.startswith((DEVICE, PROCESS))
        or name in known
        or any(one.access.path == name for one in known.values())
    )


def of_processes(values: Mapping[str, Value]) -> dict[str, Value]:
    """The part of a setting that is of running processes."""
    return {name: value for name, value in values.items() if name.startswith(PROCESS)}


def without_processes(values: Mapping[str, Value]) -> dict[str, Value]:
    """The part of a setting that can be set before any server runs."""
    return {name: value for name, value in values.items() if not name.startswith(PROCESS)}


def of_machine(name: str) -> bool:
    """Whether namespaces of this kernel have no value of their own."""
    return not is_tunable(name) or host_state.scope(registry().find(name)) is Scope.GLOBAL


def file(name: str) -> Path:
    """The file of a kernel parameter."""
    known = registry().tunables.get(name)
    return sysctl.file(known.access.path if known else name)


def _other(
    name: str, value: str, space: str | None, allow_global: bool, notes: Journal, stack: ExitStack
) -> None:
    path = file(name)

    def own() -> bool:
        # what is of the whole machine is not there, or only to be read
        return path.exists() and bool(path.stat().st_mode & 0o200)

    if namespace.inside(space, own):
        stack.callback(notes.undo, sysctl.change(notes, space, name, value))
        return
    if not path.exists():
        fix = "`netdyno tune params` shows those it has"
        raise Error("ND-104-43", f"this kernel has no {name}", at=name, fix=fix)
    if not allow_global:
        fix = "Add --global to change it for the time of the trials"
        raise Error("ND-104-42", f"{name} holds for the whole machine", at=name, fix=fix)
    with alone():
        owners.refuse_file(path, notes.folder)
        number = notes.write(
            "sysctl", path=str(path), old=path.read_text().strip(), **sysctl.about(path, None)
        )
        stack.callback(notes.undo, number)
        sysctl.write(None, name, value)
        notes.became({number: path.read_text().strip()})
