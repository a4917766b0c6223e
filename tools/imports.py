"""Lint: crates depend downwards only, the platform on no system, and no system on another; no file imports
in a circle with another, parent and child apart.

`python3 tools/imports.py` lists what is wrong and ends with 1, or says nothing. `--graph CRATE` prints what
each file of a crate imports.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parent.parent
CRATES = TOP / "crates"

# Crates of the platform from the bottom to the top: a crate may use those of the lines before its own.
# A system is a folder of crates, on top of them all: each may use the platform, and no other system.
LAYERS = [
    ["dpdk-sys", "memif", "outcome", "packet", "timer", "websocket"],
    ["dpdk", "protocol", "stack"],
    ["engine", "models", "service"],
    ["profile"],
    ["impair", "capture"],
    ["element", "run"],
    ["device", "system"],
    ["dataplane"],
    ["endpoint", "sockets", "stream"],
    ["testbed", "netdynod"],
]

# The program that puts platform and systems together, and the registry of models: the one file of each that
# knows systems.
COMPOSITION: dict[str, tuple[str, ...]] = {"netdynod": ("systems",), "models": ()}

Module = tuple[str, ...]


def modules(crate: Path) -> dict[Module, Path]:
    """The crate's files by their path of modules; tests in files of their own are part of what they test."""
    found: dict[Module, Path] = {}
    for file in sorted((crate / "src").rglob("*.rs")):
        parts = file.relative_to(crate / "src").with_suffix("").parts
        if parts[-1] in ("lib", "main", "mod"):
            parts = parts[:-1]
        if "tests" not in parts and not (parts and parts[-1].endswith("_tests")):
            found[parts] = file
    return found


def code(file: Path) -> str:
    """Without comments, strings and what is for tests only."""
    text = re.sub(r"//[^\n]*", "", file.read_text())
    text = re.sub(r"#\[cfg\((?:any\()?test.*", "", text, flags=re.S)
    return re.sub(r'"(?:\\.|[^"\\])*"', '""', text, flags=re.S)


def paths(tree: str) -> Iterator[list[str]]:
    """The paths that a `use` tree stands for: `a::{b, c::d}` is `a::b` and `a::c::d`."""
    head, brace, rest = tree.partition("{")
    prefix = [part for part in head.strip().split("::") if part]
    if not brace:
        yield [part.split(" as ")[0].strip() for part in prefix]
        return
    inner, depth, start = rest[: rest.rfind("}")], 0, 0
    for at, char in enumerate(inner + ","):
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char == "," and depth == 0:
            if inner[start:at].strip():
                for path in paths(inner[start:at]):
                    yield prefix + ([] if path == ["self"] else path)
            start = at + 1


def named(text: str, here: Module) -> Iterator[list[str]]:
    """All paths that begin at the crate's root, whether in `use` or elsewhere."""
    trees = re.findall(r"\buse\s+((?:crate|super)\b[^;]*);", text)
    used = [path for tree in trees for path in paths(tree)]
    others = re.sub(r"\buse\s[^;]*;", "", text)
    used += [path.split("::") for path in re.findall(r"\b(?:crate|super)(?:::\w+)+", others)]
    for path in used:
        base, rest = ([], path[1:]) if path[0] == "crate" else (list(here), path)
        while rest and rest[0] == "super":
            base, rest = base[:-1], rest[1:]
        yield base + rest


def resolve(
    path: list[str], there: dict[Module, Path], exports: dict[Module, dict[str, list[str]]]
) -> Module | None:
    """The file that a path leads to, through what others re-export."""
    for _ in range(4):
        known = next(tuple(path[:n]) for n in range(len(path), -1, -1) if tuple(path[:n]) in there)
        name = path[len(known)] if len(path) > len(known) else None
        further = exports[known].get(name) if name else None
        if further is None:
            return known
        path = further
    return None


def imports(crate: Path) -> dict[Module, set[Module]]:
    """Which file imports which, ancestors and descendants apart."""
    there = modules(crate)
    text = {module: code(file) for module, file in there.items()}
    exports: dict[Module, dict[str, list[str]]] = {}
    for module in there:
        exports[module] = {}
        for tree in re.findall(r"\bpub(?:\([^)]*\))? use ([^;]*);", text[module]):
            for path in paths(tree):
                if path[0] in ("crate", "self"):
                    base = [] if path[0] == "crate" else list(module)
                    exports[module][path[-1]] = base + path[1:]
                elif (*module, path[0]) in there:
                    exports[module][path[-1]] = [*module, *path]
    graph: dict[Module, set[Module]] = {}
    for module in there:
        targets = {resolve(path, there, exports) for path in named(text[module], module)}
        graph[module] = {
            to
            for to in targets
            if to is not None and to != module and to[: len(module)] != module and module[: len(to)] != to
        }
    return graph


def circles(graph: dict[Module, set[Module]]) -> list[list[Module]]:
    """Sets of files each of which leads to all others of it (Tarjan)."""
    index: dict[Module, int] = {}
    low: dict[Module, int] = {}
    stack: list[Module] = []
    found: list[list[Module]] = []

    def visit(module: Module) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for to in graph[module]:
            if to not in index:
                visit(to)
                low[module] = min(low[module], low[to])
            elif to in stack:
                low[module] = min(low[module], index[to])
        if low[module] == index[module]:
            at = stack.index(module)
            found.append(stack[at:])
            del stack[at:]

    for module in graph:
        if module not in index:
            visit(module)
    return [sorted(circle) for circle in found if len(circle) > 1]


def depended(manifest: dict[str, Any], *kinds: str) -> Iterator[str]:
    """The packages that a manifest names as dependencies of these kinds, for whatever target."""
    for table in (manifest, *manifest.get("target", {}).values()):
        for kind in kinds:
            for key, value in table.get(kind, {}).items():
                yield value.get("package", key) if isinstance(value, dict) else key


def faults() -> Iterator[str]:
    """What is wrong, a line each."""
    level = {crate: at for at, crates in enumerate(LAYERS) for crate in crates}
    folders = sorted(path.parent for path in CRATES.rglob("Cargo.toml"))
    manifests = {crate: tomllib.loads((crate / "Cargo.toml").read_text()) for crate in folders}
    names = {crate: str(manifests[crate]["package"]["name"]) for crate in folders}
    # the folder that a system's crate is in
    systems = {names[crate]: crate.parent.name for crate in folders if crate.parent != CRATES}
    for crate, name in names.items():
        where = f"crates/{crate.relative_to(CRATES).as_posix()}"
        own = systems.get(name)
        if own is None and name not in level:
            yield f"{where}: has no place in LAYERS of tools/imports.py"
            continue
        for dependency in depended(manifests[crate], "dependencies", "build-dependencies"):
            if own is None and dependency not in systems and level.get(dependency, -1) >= level[name]:
                yield f"{where}: depends on {dependency}, which is not below it"
        for dependency in depended(
            manifests[crate], "dependencies", "build-dependencies", "dev-dependencies"
        ):
            system = systems.get(dependency)
            if system is None or system == own:
                continue
            if own is not None:
                yield f"{where}: depends on {dependency} of another system, {system}"
            elif name not in COMPOSITION:
                yield f"{where}: depends on {dependency} of the system {system}, which is above the platform"
            else:
                yield from named_outside(crate, dependency, COMPOSITION[name])
        for circle in circles(imports(crate)):
            files = ", ".join("/".join(module) or "lib" for module in circle)
            yield f"{where}: these files import in a circle: {files}"


def named_outside(crate: Path, dependency: str, composition: Module) -> Iterator[str]:
    """The files of a crate that name a system's crate, apart from the one that may."""
    word = re.compile(rf"\b{dependency.replace('-', '_')}\b")
    for module, file in modules(crate).items():
        if module != composition and word.search(code(file)):
            found, only = ("/".join(one) or "its root" for one in (module, composition))
            yield f"crates/{crate.name}: {found} names {dependency}; only {only} may"


def main() -> int:
    """Print what is wrong, or a crate's imports."""
    if sys.argv[1:2] == ["--graph"]:
        for module, targets in sorted(imports(CRATES / sys.argv[2]).items()):
            print("/".join(module) or "lib", "->", " ".join(sorted("/".join(to) or "lib" for to in targets)))
        return 0
    wrong = list(faults())
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
