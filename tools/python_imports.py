"""Lint: the Python package's parts import downwards only, no system another, no logic the command line, and
no files in a circle.

`python3 tools/python_imports.py` lists what is wrong and ends with 1, or says nothing. Imports inside of
functions count: they hide a circle, they do not undo it.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from imports import circles

PACKAGE = Path(__file__).resolve().parent.parent / "python" / "netdyno"

# From the bottom to the top: a part may import those of the lines before its own.
LAYERS = [
    ["errors", "escape", "lazy", "quantities", "systems"],
    ["walk", "units"],
    ["files"],
    ["paths", "reading"],
    ["config", "importer"],
    ["assignments"],
    ["system"],
    ["core"],
    ["stats"],
    ["store", "report"],
    ["lab"],
    ["experiment"],
    ["export", "search"],
    ["doctor", "api", "reproduction"],
    ["cli"],
]

# On top of the platform: each may import all of it, and none another. `systems.py` names their parts.
SYSTEMS = ["fleet", "nat", "sip", "switch", "tuning", "web"]

# What faces people in a system: it may import the command line, and the rest of its system neither of both.
FRONT = {"verbs", "dashboard", "demo", "reproduce"}

Module = tuple[str, ...]


def modules() -> dict[Module, Path]:
    """The package's files by their path of modules."""
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        found[parts[:-1] if parts[-1] == "__init__" else parts] = file
    return found


def imports(file: Path, there: dict[Module, Path]) -> Iterator[Module]:
    """The files of the package that one imports."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "netdyno":
            base = tuple(str(node.module).split(".")[1:])
            for alias in node.names:
                yield (*base, alias.name) if (*base, alias.name) in there else base
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("netdyno."):
                    yield tuple(alias.name.split(".")[1:])


def faults() -> Iterator[str]:
    """What is wrong, a line each."""
    there = modules()
    level = {part: at for at, parts in enumerate([*LAYERS, SYSTEMS]) for part in parts}
    graph = {module: {to for to in imports(file, there) if to != module} for module, file in there.items()}
    for module, targets in graph.items():
        if not module or module == ("__main__",):
            continue
        name = "/".join(module)
        if module[0] not in level:
            yield f"netdyno/{name}: has no place in LAYERS of tools/python_imports.py"
            continue
        for to in sorted(targets):
            if _is_below_front(module) and _is_front(to, module[0]):
                yield f"netdyno/{name}: imports {'.'.join(to)}: only {', '.join(sorted(FRONT))} may"
            if to and to[0] != module[0] and level.get(to[0], -1) >= level[module[0]]:
                yield f"netdyno/{name}: imports {'.'.join(to)}, which is {_what(module[0], to[0])}"
    # a package and its own files may know each other
    apart = {
        module: {to for to in targets if to[: len(module)] != module and module[: len(to)] != to}
        for module, targets in graph.items()
    }
    for circle in circles(apart):
        yield f"these files import in a circle: {', '.join('/'.join(module) for module in circle)}"


def _is_below_front(module: Module) -> bool:
    """Whether it is a part of a system that knows of no command line; the dashboard `web` is all front."""
    return module[0] in SYSTEMS and module[0] != "web" and not FRONT & set(module)


def _is_front(module: Module, system: str) -> bool:
    """Whether it is the command line, or what faces people in a system."""
    return module[:1] == ("cli",) or (module[:1] == (system,) and bool(FRONT & set(module)))


def _what(part: str, to: str) -> str:
    if to not in SYSTEMS:
        return "not below it"
    return "another system's" if part in SYSTEMS else "a system's, named in systems.py"


def main() -> int:
    """Print what is wrong."""
    wrong = list(faults())
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
