"""The report of a reproduction: one self-contained page, ours next to the papers' figures."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup, escape

from netdyno.reproduction.part_result import PartResult
from netdyno.reproduction.texts import KOREAN

WORDS = {
    "measured": "measured",
    "missing": "not possible here",
    "failed": "failed",
    "no time": "left out for time",
}
"""States as the page counts them."""


def render(parts: Sequence[PartResult], machine: Mapping[str, Any], quick: bool) -> str:
    """The page as HTML; it loads nothing and runs no script."""
    made = Environment(loader=PackageLoader("netdyno.reproduction", "template"), autoescape=True)
    made.filters["base64"] = lambda text: base64.b64encode(text.encode()).decode()
    made.filters["t"] = translated
    style = files("netdyno.report").joinpath("assets", "base.css").read_text()
    return made.get_template("reproduction.html.j2").render(
        parts=parts, quick=quick, counts=numbers(parts), machine=facts(machine), style=style
    )


def translated(text: str) -> Markup:
    """A text in both languages, of which the page shows one; without a translation as it is."""
    if text not in KOREAN:
        return escape(text)
    both = {"en": text, "ko": KOREAN[text]}
    return Markup("").join(
        Markup('<span class="t" lang="{}">{}</span>').format(language, words)
        for language, words in both.items()
    )


def numbers(parts: Sequence[PartResult]) -> dict[str, int]:
    """How many parts are in each state, and how many are not valid."""
    found = Counter(WORDS[one.state] for one in parts)
    found["not valid"] = sum(one.state == "measured" and not one.valid for one in parts)
    return {word: found[word] for word in (*WORDS.values(), "not valid") if found[word]}


def counts(parts: Sequence[PartResult]) -> str:
    """How many parts were measured, in a sentence."""
    found = numbers(parts)
    doubtful = found.pop("not valid", 0)
    said = ", ".join(f"{number} {word}" for word, number in found.items())
    return f"{len(parts)} parts: {said}{f' ({doubtful} of them not valid)' if doubtful else ''}."


def facts(machine: Mapping[str, Any]) -> str:
    """The machine in a line."""
    memory = (machine.get("memory_bytes") or 0) / 2**30
    model = (machine.get("cpu") or {}).get("model") or "CPU"
    return (
        f"{machine['cores']} cores ({model}), {memory:.0f} GiB of memory, kernel {machine['kernel']}, "
        f"{machine['distribution']}, hypervisor: {machine['hypervisor']}; netdyno {machine['netdyno']}"
    )
