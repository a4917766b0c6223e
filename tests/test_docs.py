"""What the pages say is there: tests named in the specification, links, examples, generated files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from netdyno.cli.app import verbs
from netdyno.systems import SYSTEMS

TOP = Path(__file__).resolve().parents[1]
PAGES = sorted([*TOP.glob("*.md"), *(TOP / "docs").rglob("*.md")])


def name(page: Path) -> str:
    return str(page.relative_to(TOP))


def place(short: str) -> Path:
    """`py/test_x.py` → its file; `protocol/ping.rs` → `crates/protocol/src/ping.rs`."""
    first, _, rest = short.partition("/")
    if first == "py":
        return TOP / "python/tests" / rest
    if first == "e2e":
        return TOP / "tests" / rest
    if first == "crates":
        return TOP / short
    return TOP / "crates" / first / "src" / rest


def commands(page: Path) -> list[str]:
    """The lines of a page's blocks of commands and output."""
    blocks = re.findall(r"^```(?:sh)?\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines()]


@pytest.mark.parametrize("page", [p for p in PAGES if "reference" not in p.parts], ids=name)
def test_commands_name_the_program_where_setup_puts_it(page: Path) -> None:
    """`./do setup` makes `.venv`, and puts nothing on the PATH."""
    bare = [line for line in commands(page) if re.match(rf"(sudo )?netdyno ({'|'.join(verbs())})\b", line)]
    assert not bare


def test_every_test_in_the_specification_exists() -> None:
    named = re.findall(r"`([\w/.-]+\.(?:rs|py))::(\w+)`", (TOP / "SPECIFICATION.md").read_text())
    assert len(named) > 30
    missing = [
        f"{file}::{test}"
        for file, test in named
        if not place(file).is_file() or not re.search(rf"\b(fn|def) {test}\b", place(file).read_text())
    ]
    assert not missing


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they come out on the web."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'src="([^"]+)"', text)
    broken = []
    for link in links:
        if re.match(r"https?://", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        to = (page.parent / path).resolve() if path else page
        if not to.exists() or (anchor and to.suffix == ".md" and anchor not in anchors(to)):
            broken.append(link)
    assert not broken


def test_presets_and_examples_are_good() -> None:
    files = [
        *TOP.glob("profiles/*.json"),
        # studies.yaml lists experiments; `netdyno reproduce` reads it
        *(path for path in TOP.glob("experiments/**/*.yaml") if path.name != "studies.yaml"),
        # of a server: `netdyno serve script` reads it
        *(path for path in TOP.glob("examples/*.yaml") if path.name != "script-server.yaml"),
    ]
    assert len(files) > 8
    done = subprocess.run(
        [sys.executable, "-m", "netdyno", "validate", *map(str, files)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_generated_files_are_current() -> None:
    done = subprocess.run(
        [sys.executable, TOP / "tools/reference.py", "--check"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_pages_name_only_verbs_that_exist() -> None:
    verbs = set(
        re.findall(
            r"^### `netdyno (\w+)`",
            (TOP / "docs/reference/cli.md").read_text(),
            re.MULTILINE,
        )
    )
    jobs = set(re.findall(r"^verb_(\w+)\(\)", (TOP / "do").read_text(), re.MULTILINE))
    assert {"demo", "run"} <= verbs
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL):
            for verb in re.findall(r"^(?:sudo )?(?:\.venv/bin/)?netdyno ([a-z]\w*)", block, re.MULTILINE):
                assert verb in verbs, f"{name(page)}: netdyno {verb}"
            for job in re.findall(r"^\./do (\w+)", block, re.MULTILINE):
                assert job in jobs, f"{name(page)}: ./do {job}"


@pytest.mark.parametrize(
    "page", ["profile", "experiment", "result", *(name for one in SYSTEMS for name in one.configurations)]
)
def test_every_key_has_a_meaning(page: str) -> None:
    rows = (TOP / f"docs/reference/{page}.md").read_text().splitlines()
    assert not [row for row in rows if row.startswith("| `") and row.endswith("|  |")]
