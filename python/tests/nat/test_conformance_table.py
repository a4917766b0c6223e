"""The table of RFCs says "meets" only where a case that is played over ports shows it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TABLE = ROOT / "docs/methodology/nat.md"
CASES = ROOT / "crates/nat/core/cases"
PORTS = ROOT / "crates/nat/elements/tests"
PLAYED = ROOT / "crates/nat/elements/tests/conformance.rs"


def rows() -> list[tuple[str, str, str]]:
    """Requirement, how it stands, and what shows it."""
    found = (re.fullmatch(r"\| (.+?) \| (.+?) \|(.*)\|", line) for line in TABLE.read_text().splitlines())
    return [(one[1], one[2], one[3]) for one in found if one and not set(one[2]) <= set("- |")]


def test_what_is_met_is_shown_over_ports() -> None:
    cases = {path.stem for path in CASES.iterdir()}
    otherwise = set(re.findall(r'\(\s*"(\w+)",\s*"only', PLAYED.read_text()))
    assert otherwise and otherwise <= cases
    tests = {
        name for path in PORTS.rglob("*.rs") for name in re.findall(r"#\[test\]\nfn (\w+)", path.read_text())
    }
    met = [(what, shown) for what, stands, shown in rows() if stands.startswith("meets")]
    assert len(met) > 30
    for what, shown in met:
        named = set(re.findall(r"`(\w+)`", shown))
        assert (named & (cases | tests)) - otherwise, f"{what}: no case that is played over ports shows it"


def test_each_case_that_is_named_is_there() -> None:
    cases = {path.stem for path in CASES.iterdir()}
    for what, _, shown in rows():
        for name in re.findall(r"`((?:rfc|mss)\w+)`", shown):
            assert name in cases, f"{what}: {name}"
