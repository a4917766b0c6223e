"""One file of many: scripts and styles put into the page, and a policy that allows nothing else."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

UPLOT = "uplot-1.6.32"
#: Modules in the order of their dependencies; each may import from those before it.
MODULES = (
    "i18n.js",
    "format.js",
    "theme.js",
    "store.js",
    "copy.js",
    "png.js",
    "legend.js",
    "marks.js",
    "chart.js",
    "figure.js",
    "tables.js",
    "flows.js",
    "main.js",
)
STYLES = ("base.css", "parts.css", "chart.css", "print.css")

_IMPORT = re.compile(r'^import [^;]*? from "\./([\w.-]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|let|class) )", re.MULTILINE)


def _read(folder: str, name: str) -> str:
    return (files(__package__) / folder / name).read_text(encoding="utf-8")


def join(modules: dict[str, str]) -> str:
    """ES modules as one: imports between them fall away, as all share one scope afterwards.

    The order is checked; a name that two modules declare would be a syntax error in the page.
    """
    seen: set[str] = set()
    parts = []
    for name, source in modules.items():
        for wanted in _IMPORT.findall(source):
            if wanted not in seen:
                raise ValueError(f"{name} imports {wanted}, which does not stand before it")
        seen.add(name)
        parts.append(f"// {name}\n" + _EXPORT.sub("", _IMPORT.sub("", source)))
    return "\n".join(parts)


@cache
def script() -> str:
    """The page's own script."""
    return join({name: _read("assets", name) for name in MODULES})


@cache
def uplot() -> str:
    """The chart library with its licence."""
    return f"/*\n{_read('vendor', 'LICENSE-uplot.txt')}\n*/\n{_read('vendor', f'{UPLOT}.iife.min.js')}"


@cache
def style() -> str:
    """All styles."""
    return "\n".join([_read("vendor", f"{UPLOT}.min.css"), *(_read("assets", name) for name in STYLES)])


def digest(source: str) -> str:
    """How a Content Security Policy names an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def policy(scripts: list[str], styles: list[str]) -> str:
    """Exactly these scripts and styles; no request (the icon is `data:`), no form, no frame, no base."""
    return (
        f"default-src 'none'; script-src {' '.join(map(digest, scripts))}; "
        f"style-src {' '.join(map(digest, styles))}; img-src data:; base-uri 'none'; form-action 'none'"
    )


def json_block(value: Any) -> str:
    """JSON that may stand within a script element, whatever its strings hold."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def packed(text: str) -> str:
    """A file to download, as the page carries it: gzip, base64; the same input gives the same text."""
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()
