"""Bill of materials in SPDX 2.3: the daemon's Rust crates and libraries, and the Python packages."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import time
import uuid
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).resolve().parent.parent
DAEMON = "netdynod"
Part = tuple[str, str, str, str]
"""Kind of package, name, version, licence."""


def document(library: Path | None, version: str, seconds: int, linked: Sequence[Part] = ()) -> str:
    """The document, as JSON; the same for the same parts. `library`: where Python packages are packed;
    `linked`: packages of the distribution that are part of the daemon."""
    packed = _packages(library) if library else [("pypi", "netdyno", version, "Apache-2.0")]
    parts = [*_crates(), *linked, *packed]
    names = "\n".join(f"{kind} {name} {release}" for kind, name, release, _ in parts)
    made = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"netdyno-{version}",
        "documentNamespace": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, names)}",
        "creationInfo": {
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)),
            "creators": ["Tool: packaging/sbom.py"],
        },
        "packages": [_package(*part) for part in parts],
        "relationships": [
            {
                "spdxElementId": "SPDXRef-DOCUMENT",
                "relationshipType": "DESCRIBES",
                "relatedSpdxElement": _reference(*part[:3]),
            }
            for part in parts
            if part[1] in ("netdyno", DAEMON)
        ],
    }
    return json.dumps(made, indent=1) + "\n"


def _crates() -> list[Part]:
    """Crates that the daemon is built of."""
    command = ("cargo", "metadata", "--format-version", "1", "--locked", "--offline")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    packages = {one["id"]: one for one in found["packages"]}
    nodes = {one["id"]: one for one in found["resolve"]["nodes"]}
    (start,) = [key for key, one in packages.items() if one["name"] == DAEMON]
    reached, open_ends = {start}, [start]
    while open_ends:
        for dependency in nodes[open_ends.pop()]["deps"]:
            used = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if used and dependency["pkg"] not in reached:
                reached.add(dependency["pkg"])
                open_ends.append(dependency["pkg"])
    crates = [packages[key] for key in reached]
    return sorted(("cargo", one["name"], one["version"], one["license"] or "NOASSERTION") for one in crates)


def _packages(library: Path) -> list[Part]:
    """Python packages below a folder."""
    found = []
    for one in distributions(path=[str(library)]):
        said = one.metadata.get("License-Expression") or one.metadata.get("License") or ""
        plain = said if re.fullmatch(r"[\w.+\- ()]{1,80}", said) else "NOASSERTION"
        found.append(("pypi", str(one.metadata["Name"]).lower(), one.version, plain))
    return sorted(found)


def _reference(kind: str, name: str, version: str) -> str:
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", f"{kind}-{name}-{version}")


def _locator(kind: str, name: str, version: str) -> str:
    """The package as a purl; those of a distribution are sources of the one that this runs on."""
    if kind == "deb":
        return f"pkg:deb/{platform.freedesktop_os_release()['ID']}/{name}@{quote(version)}?arch=source"
    return f"pkg:{kind}/{name}@{version}"


def _package(kind: str, name: str, version: str, licence: str) -> dict[str, Any]:
    expression = re.fullmatch(r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*", licence)
    return {
        "SPDXID": _reference(kind, name, version),
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": licence if expression else "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": _locator(kind, name, version),
            }
        ],
    }
