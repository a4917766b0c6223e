"""Runs the programs of the Rust tests beside each other, as most of them wait: `./do test rust`.

CARGO_JSON lists them (`cargo test --no-run --message-format json`). What a program says is shown, whole, when
it has ended. Tests in documentation, which cargo alone can run, are run beside them. Exit code 0: all passed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
CRATES = TOP / "crates"
BESIDE = 3
"""Programs that run at a time, each with a thread per core."""
LONGEST = 15 * 60
"""Seconds that one program may take."""
RUNNING: set[int] = set()
"""Their groups of processes."""
DOCUMENTATION = ("cargo", "test", "--workspace", "--exclude", "fuzz", "--locked", "--doc", "--no-fail-fast")
FIRST = (
    "documentation", "nat/core/properties", "sockets/silent", "netdynod/rpc", "stream", "run/contract",
    "stream/streams", "stream/arp_nd", "stream/offloads", "nat/dhcp", "sockets/sockets", "impair",
    "profile/bad",
)  # fmt: skip
"""What takes longest begins first, so that nothing of it is left to wait for alone at the end."""


@dataclass(frozen=True)
class Program:
    """One program of tests."""

    name: str
    command: tuple[str, ...]
    folder: Path = TOP
    environment: dict[str, str] = field(default_factory=dict)

    def run(self) -> tuple[bool, str]:
        """Whether all its tests passed, and what it said."""
        began = time.monotonic()
        # in a group of its own, which ends as a whole: a program may have started others
        running = subprocess.Popen(
            self.command, cwd=self.folder, env=os.environ | self.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, process_group=0,
        )  # fmt: skip
        RUNNING.add(running.pid)
        try:
            said, _ = running.communicate(timeout=LONGEST)
            passed = running.returncode == 0
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            said = running.communicate()[0] + f"\nmore than {LONGEST} s\n".encode()
            passed = False
        finally:
            RUNNING.discard(running.pid)
        head = f"Running {self.name} ({time.monotonic() - began:.1f} s)"
        return passed, f"{head}\n{said.decode(errors='replace').strip()}\n"


def programs(listed: str) -> Iterator[Program]:
    """Those that cargo has built; of a crate's integration tests one for each module.

    The modules of an integration test are linked into one program, and each runs in a process of its own:
    DPDK can be started once in a process.
    """
    for line in listed.splitlines():
        built = json.loads(line) if line.startswith("{") else {}
        if not built.get("executable") or not built["profile"]["test"]:
            continue
        folder, program = Path(built["manifest_path"]).parent, built["executable"]
        environment = {"CARGO_MANIFEST_DIR": str(folder)}
        crate = folder.relative_to(CRATES).as_posix() if folder.is_relative_to(CRATES) else folder.name
        if built["target"]["kind"] != ["test"]:
            yield Program(crate, (program,), folder, environment)
            continue
        for module, tests in modules(program).items():
            yield Program(f"{crate}/{module}", (program, "--exact", *tests), folder, environment)


def modules(program: str) -> dict[str, list[str]]:
    """The tests of an integration test by their module; by the program's name where they are in none."""
    found: dict[str, list[str]] = {}
    listed = subprocess.run(
        (program, "--list", "--format", "terse"), capture_output=True, text=True, check=True
    )
    for line in listed.stdout.splitlines():
        test, _, kind = line.rpartition(": ")
        if kind == "test":
            module = test.split("::")[0] if "::" in test else Path(program).name.rsplit("-", 1)[0]
            found.setdefault(module, []).append(test)
    return found


def main() -> int:
    """Read the command line; see the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cargo_json", type=Path)
    wanted = list(programs(parser.parse_args().cargo_json.read_text()))
    if not wanted:
        sys.exit("no programs of tests are listed")
    wanted.append(Program("documentation", DOCUMENTATION))
    wanted.sort(key=lambda one: FIRST.index(one.name) if one.name in FIRST else len(FIRST))
    failed = []
    with ThreadPoolExecutor(BESIDE) as pool:
        running = {pool.submit(one.run): one for one in wanted}
        try:
            for done in as_completed(running):
                passed, said = done.result()
                print(said, flush=True)
                if not passed:
                    failed.append(running[done].name)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for group in list(RUNNING):
                os.killpg(group, signal.SIGKILL)
            return 105
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
