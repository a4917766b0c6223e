"""Files of the dashboard's page: its own, those of systems and the report, and libraries; compressed once."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from netdyno.report import inline
from netdyno.report.locale import catalogues
from netdyno.systems import SYSTEMS

LIT = "lit-html-3.3.3.js"
TYPES = {
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
}
TYPES["json"] = "application/json"
REPORT = ("i18n.js", "format.js", "theme.js", "png.js", "legend.js", "marks.js", "chart.js", "figure.js")
"""Modules of the report that draw here too."""
STYLES = ("base.css", "parts.css", "chart.css")


@dataclass(frozen=True)
class Asset:
    """A file as it is sent."""

    kind: str
    text: bytes
    packed: bytes
    tag: str


@cache
def all_assets() -> dict[str, Asset]:
    """By the name in the address."""
    web, report = files("netdyno.web"), files("netdyno.report")
    texts = {
        one.name: one.read_text(encoding="utf-8") for one in (web / "assets").iterdir() if "." in one.name
    }
    texts |= {name: (report / "assets" / name).read_text(encoding="utf-8") for name in REPORT}
    for system in (one for one in SYSTEMS if one.name != "web"):
        for page in system.dashboard:
            # all are in one folder of the address
            assert page.script not in texts, f"{page.script} of {system.name} is the name of another file"
            texts[page.script] = (files(f"netdyno.{system.name}") / "assets" / page.script).read_text("utf-8")
    texts["pages.json"] = json.dumps([asdict(page) for system in SYSTEMS for page in system.dashboard])
    texts["lit-html.js"] = (web / "vendor" / LIT).read_text(encoding="utf-8")
    texts["uplot.js"] = inline.uplot()
    styles = [(report / "vendor" / f"{inline.UPLOT}.min.css").read_text(encoding="utf-8")]
    styles += [(report / "assets" / name).read_text(encoding="utf-8") for name in STYLES]
    texts["report.css"] = "\n".join(styles)
    texts["texts.json"] = json.dumps(catalogues(), ensure_ascii=False, separators=(",", ":"))
    return {name: _asset(name, text) for name, text in texts.items()}


def _asset(name: str, text: str) -> Asset:
    data = text.encode()
    packed = gzip.compress(data, 9, mtime=0)
    return Asset(TYPES[name.rpartition(".")[2]], data, packed, hashlib.sha256(data).hexdigest()[:16])


def answer(request: Request, name: str) -> Response:
    """A file, or that there is none."""
    found = all_assets().get(name)
    if found is None:
        return Response(status_code=404)
    small = _takes_gzip(request.headers.get("accept-encoding", ""))
    # the same text in another coding is not the same bytes (RFC 9110 section 8.8.3.3)
    tag = f'"{found.tag}-gzip"' if small else f'"{found.tag}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    known = {one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")}
    if known & {tag, "*"}:
        return Response(status_code=304, headers=headers)
    if small:
        headers["Content-Encoding"] = "gzip"
    return Response(found.packed if small else found.text, media_type=found.kind, headers=headers)


def _takes_gzip(codings: str) -> bool:
    """Whether a browser's `Accept-Encoding` allows it: named, and not with a weight of 0."""
    weights = {}
    for one in codings.lower().split(","):
        name, *parameters = (part.strip() for part in one.split(";"))
        weights[name] = next((p.removeprefix("q=") for p in parameters if p.startswith("q=")), "1")
    weight = weights.get("gzip", weights.get("*", "0"))
    return weight.replace(".", "", 1).isdecimal() and float(weight) > 0
