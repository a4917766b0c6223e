"""Runs tests many times in a row while a busy loop holds every core: `./do test --stress NAME [TIMES]`.

NAME selects as `pytest -k` does in `python/tests` and `tests`, or is a file of tests there; and as `cargo
test NAME` does among the Rust tests whose programs are listed in CARGO_JSON (`cargo test --no-run
--message-format json`); `all` selects every test. More than a few run beside each other, as in `./do test`.
Exit code 0: every run passed, or was inconclusive in at most one of ten; a test that is skipped is told.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
LONGEST = 60 * 60
"""Seconds that one run of the selected tests may take."""
WORKERS, PROGRAMS = 6, 3
"""Python tests, and Rust tests, that run beside each other where more than that many are selected."""
LOOPS_END = 6 * 3600
"""Seconds after which a busy loop ends, whatever happened to who started it."""
INCONCLUSIVE = 0.1
"""Share of runs that may be inconclusive."""
TREES = {"python/tests": "python", "tests": "."}
"""Trees of tests, and pytest's root of each."""
PR_SET_PDEATHSIG = 1


def end_with_parent(number: signal.Signals) -> None:
    """Have a signal sent to this process when the one that started it is gone, however it went (prctl(2))."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(number))


def loop(core: int, parent: int) -> None:
    """Hold a core until the parent is gone or the time is over."""
    end_with_parent(signal.SIGKILL)
    signal.alarm(LOOPS_END)
    os.sched_setaffinity(0, {core})
    while os.getppid() == parent:
        for _ in range(1_000_000):
            pass


@contextmanager
def busy(cores: list[int]) -> Iterator[None]:
    """One busy loop for each core, in a session of its own: time is shared by session first (autogroup)."""
    loops = [
        subprocess.Popen(
            [sys.executable, __file__, "--loop", str(core), str(os.getpid())], start_new_session=True
        )
        for core in cores
    ]
    try:
        yield
    finally:
        for one in loops:
            one.kill()
        for one in loops:
            one.wait()


@dataclass
class Tally:
    """What became of one test, run after run."""

    outcomes: Counter[str] = field(default_factory=Counter)
    worst: float = 0.0
    said: dict[str, str] = field(default_factory=dict)

    def add(self, outcome: str, seconds: float, said: str) -> None:
        """Of one run."""
        self.outcomes[outcome] += 1
        self.worst = max(self.worst, seconds)
        if outcome != "passed":
            self.said[outcome] = said

    def good(self) -> bool:
        """Whether it passed each time, but for few that could not measure."""
        runs = self.outcomes.total()
        doubtful = self.outcomes["inconclusive"]
        return self.outcomes["passed"] + doubtful == runs and doubtful <= INCONCLUSIVE * runs

    def line(self) -> str:
        """`20 of 20 passed, worst 3.2 s`."""
        passed, runs = self.outcomes["passed"], self.outcomes.total()
        others = [f"{n} {what} ({self.said[what]})" for what, n in self.outcomes.items() if what != "passed"]
        return ", ".join([f"{passed} of {runs} passed", *others, f"worst {self.worst:.1f} s"])


Outcome = tuple[str, str, float, str]
"""Name, outcome, seconds, and what was said if it did not pass."""


def run(command: list[str], log: Path, folder: Path = TOP) -> tuple[int, str]:
    """Exit status and output; the log gets it too."""
    try:
        done = subprocess.run(
            ["setpriv", "--pdeathsig", "INT", *command], cwd=folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True, errors="replace",
            timeout=LONGEST,
        )  # fmt: skip
        status, text = done.returncode, done.stdout
    except subprocess.TimeoutExpired as over:
        text = over.stdout.decode(errors="replace") if isinstance(over.stdout, bytes) else over.stdout or ""
        status, text = 124, f"{text}\nmore than {LONGEST} s"
    with log.open("a") as file:
        file.write(text)
    return status, text


class Pytest:
    """The tests of one tree that a name selects."""

    def __init__(self, tree: str, name: str, log: Path) -> None:
        self.tree, self.log = tree, log
        self.names: list[str] = []
        file = name.partition("::")[0]
        if name == "all":
            name = ""
        is_file = file.endswith(".py") and (TOP / file).is_file()
        if is_file and not file.startswith(f"{tree}/"):
            return
        chosen = [name] if is_file else [tree, "-k", name]
        self.command = [
            sys.executable, "-m", "pytest", "-c", "python/pyproject.toml", "--rootdir", TREES[tree],
            "-p", "no:cacheprovider", *chosen,
        ]  # fmt: skip
        listed = run([*self.command, "--collect-only"], Path(os.devnull))[1]
        self.names = [line for line in listed.splitlines() if "::" in line and not line.startswith("ERROR")]

    def once(self) -> list[Outcome]:
        """Run them once; those that are marked `alone` after the others."""
        if len(self.names) <= WORKERS:
            return self._report([])
        if self.tree != "tests":  # only there is one marked
            return self._report(["-n", str(WORKERS)])
        return self._report(["-n", str(WORKERS), "-m", "not alone"]) + self._report(["-m", "alone"])

    def _report(self, options: list[str]) -> list[Outcome]:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            status, text = run([*self.command, *options, "--junitxml", str(report)], self.log)
            if not report.exists():
                return [(self.tree, "failed", 0.0, f"exit {status}: {text.strip().splitlines()[-1:]}")]
            return [self._outcome(case) for case in ET.parse(report).iter("testcase")]

    def _outcome(self, case: ET.Element) -> Outcome:
        name = f"{case.get('classname')}::{case.get('name')}"
        seconds = float(case.get("time") or 0)
        for what in ("failure", "error"):
            if (bad := case.find(what)) is not None:
                return name, "failed", seconds, (bad.get("message") or what).splitlines()[0][:200]
        reason = next(
            (p.get("value", "") for p in case.iter("property") if p.get("name") == "inconclusive"), None
        )
        if reason is not None:
            return name, "inconclusive", seconds, reason
        if (skipped := case.find("skipped")) is not None:
            return name, "skipped", seconds, skipped.get("message") or ""
        return name, "passed", seconds, ""


class Rust:
    """The tests of the workspace's programs that a name selects."""

    def __init__(self, programs: Path, name: str, log: Path) -> None:
        self.log = log
        self.names: list[str] = []
        self._tests: list[tuple[str, Path, str]] = []
        for text in programs.read_text().splitlines():
            built = json.loads(text) if text.startswith("{") else {}
            if not (built.get("executable") and built.get("profile", {}).get("test")):
                continue
            folder, program = Path(built["manifest_path"]).parent, built["executable"]
            wanted = [program] if name == "all" else [program, name]
            listed = self._listed(wanted, folder) - self._listed([*wanted, "--ignored"], folder)
            for test in sorted(listed):
                self._tests.append((program, folder, test))
                self.names.append(f"{folder.name}/{built['target']['name']}::{test}")

    @staticmethod
    def _listed(command: list[str], folder: Path) -> set[str]:
        listed = run([*command, "--list"], Path(os.devnull), folder)[1]
        return set(re.findall(r"^(.+): test$", listed, re.MULTILINE))

    def once(self) -> list[Outcome]:
        """Run each once, in a process of its own."""
        with ThreadPoolExecutor(1 if len(self.names) <= PROGRAMS else PROGRAMS) as beside:
            return list(beside.map(self._one, self.names, self._tests))

    def _one(self, name: str, of: tuple[str, Path, str]) -> Outcome:
        program, folder, test = of
        began = time.monotonic()
        status, text = run(
            ["env", f"CARGO_MANIFEST_DIR={folder}", program, "--exact", test], self.log, folder
        )
        seconds = time.monotonic() - began
        told = re.search(r"(SKIPPED|INCONCLUSIVE): (.*)", text)
        if status or "1 passed" not in text:
            panic = re.search(r"panicked at .*\n.*", text)
            return name, "failed", seconds, panic[0][:200] if panic else f"exit {status}"
        if told:
            return name, told[1].lower(), seconds, told[2]
        return name, "passed", seconds, ""


def main() -> int:
    """Read the command line; see the head of this file."""
    if sys.argv[1:2] == ["--loop"]:
        loop(int(sys.argv[2]), int(sys.argv[3]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("times", type=int)
    parser.add_argument("cargo_json", type=Path, nargs="?")
    parser.add_argument("--end-with-parent", action="store_true", help="when started by sudo")
    parser.add_argument("--quiet", action="store_true", help="without busy loops")
    asked = parser.parse_args()
    if asked.end_with_parent:
        end_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    log = TOP / "target" / "do" / "stress.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    kinds: list[Pytest | Rust] = [Pytest(tree, asked.name, log) for tree in TREES]
    if asked.cargo_json:
        kinds.append(Rust(asked.cargo_json, asked.name, log))
    kinds = [kind for kind in kinds if kind.names]
    if not kinds:
        print(f"error: no test matches '{asked.name}'", file=sys.stderr)
        return 104
    tests: defaultdict[str, Tally] = defaultdict(Tally)
    whole = Tally()
    with busy([] if asked.quiet else sorted(os.sched_getaffinity(0))):
        for number in range(1, asked.times + 1):
            began, outcomes = time.monotonic(), [one for kind in kinds for one in kind.once()]
            seconds = time.monotonic() - began
            for name, outcome, took, said in outcomes:
                tests[name].add(outcome, took, said)
            ranked = ("failed", "inconclusive", "passed", "skipped")
            worst = min((outcome for _, outcome, _, _ in outcomes), key=ranked.index, default="failed")
            said = next((f"{name}: {why}" for name, outcome, _, why in outcomes if outcome == worst), "")
            whole.add(worst, seconds, said)
            print(f"• {number} of {asked.times}: {worst} in {seconds:.1f} s", flush=True)
    for name, tally in sorted(tests.items()):
        print(f"{name}: {tally.line()}")
    print(f"{asked.name}: {whole.line()}")
    if not whole.good():
        print(f"the output of all runs is in {log.relative_to(TOP)}")
    return 0 if whole.good() else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(105)
