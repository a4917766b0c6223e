"""A reproduction in a virtual machine, whose parameters of the whole machine are its own."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from netdyno import files, paths
from netdyno.errors import Error
from netdyno.store import Store
from netdyno.store.store import read_result
from netdyno.system import python
from netdyno.system.interrupt import Interrupts
from netdyno.system.vm.machine import Job, Sink, VirtualMachine
from netdyno.system.vm.setup import Setup
from netdyno.tuning import benches, host_state
from netdyno.tuning.model import Scope
from netdyno.tuning.registry import registry
from netdyno.tuning.tables import Tables
from netdyno.tuning.trial_setting import of_machine

PASSED_ON = (
    "PATH", "HOME", "LANG", "LC_ALL", "LC_MESSAGES", "TZ", "PYTHONPATH", "VIRTUAL_ENV", "NETDYNO_DAEMON",
    "NETDYNO_DEBUG", "NETDYNO_WIDTH",
)  # fmt: skip
"""What of the environment a command in a virtual machine gets."""


def machine_wide(made: Tables) -> list[str]:
    """Parameters of the whole machine, as this kernel has them, that tables ask for."""
    asked = [name for text in made.settings for name in benches.setting(text)]
    there = host_state.read_states(registry(), dict.fromkeys(asked))
    of_settings = [n for n, one in there.items() if one.scope is Scope.GLOBAL and one.state == "there"]
    of_benches = [name for spec in made.benches.values() for name in spec.machine if of_machine(name)]
    return list(dict.fromkeys([*of_benches, *of_settings]))


@dataclass(frozen=True)
class VmState:
    """State that outlasts the virtual machine, from which an interrupted reproduction resumes."""

    folder: Path

    @classmethod
    def of(cls, state: Path) -> VmState:
        """That of a state; in the virtual machine its own state is it."""
        return cls(state / "vm")

    @property
    def runs(self) -> Path:
        """Run folders."""
        return self.folder / "runs"

    @property
    def page(self) -> Path:
        """The page that was asked for."""
        return self.folder / "out" / "page.html"

    @property
    def figures(self) -> Path:
        """The figures that were asked for."""
        return self.folder / "out" / "figures"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One virtual machine at a time uses it, and finds nothing there that an earlier one gave out."""
        files.make_folder(self.folder, private=True)
        with files.os_errors(self.folder), files.open_private(self.folder / "lock", "ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as e:
                what, fix = "another reproduction runs in a virtual machine", "Wait for it to end"
                raise Error("ND-92-28", what, at=str(self.folder), fix=fix) from e
            shutil.rmtree(self.folder / "out", ignore_errors=True)
            yield

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """That of a command in the virtual machine."""
        own = {"NETDYNO_STATE": str(self.folder), "NETDYNO_RUNS": str(self.runs)}
        return {name: given[name] for name in PASSED_ON if name in given} | own

    def bring_home(self) -> list[str]:
        """Move runs to where those of this machine are, and enter them into its store; their ids."""
        found = []
        for folder in sorted(path.parent for path in self.runs.glob("*/result.json")):
            result = read_result(folder / "result.json")
            if result.id != folder.name:
                continue  # it would be written elsewhere
            to = files.new_private_folder(paths.runs(), result.id)
            with files.os_errors(to):
                shutil.copytree(folder, to, dirs_exist_ok=True)
            with Store() as store:
                store.put(result, to)
            shutil.rmtree(folder)
            found.append(result.id)
        return found


def run(
    setup: Setup,
    words: Sequence[str],
    place: VmState,
    more: Mapping[str, str],
    streams: tuple[Sink, Sink],
    interrupts: Interrupts,
    told: Callable[[str], None],
) -> int:
    """Run a command of netdyno's in a virtual machine, and have its runs here; its exit code.

    `more` is of its environment; `streams` take what it prints and its notes.
    """
    command = python.module("netdyno", *words)
    job = Job(command, Path.cwd(), place.folder, place.environment({**os.environ, **more}))
    with place.alone():
        try:
            with interrupts.asking():
                return VirtualMachine(setup, job).run(*streams, interrupts, told)
        finally:
            with interrupts.shielded():
                place.bring_home()
