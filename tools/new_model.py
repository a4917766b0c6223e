"""Create a protocol model to start from: `./do new-model NAME`.

The model is a small client over UDP, one request per interval and a reply for each. It compiles, is
registered, has unit tests, a fuzz target and a preset. Change it to your protocol and follow CONTRIBUTING.md.
"""

from __future__ import annotations

import json
import keyword
import re
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = Path(__file__).resolve().parent / "new_model" / "model.rs"
RUST = """
abstract as become box const crate do dyn enum extern final fn impl let loop macro match mod move mut override
priv pub ref self static struct super trait type typeof unsafe unsized use virtual where
"""
"""Keywords of Rust that are none of Python's."""

BIN = ("test = false", "doc = false", "bench = false")
"""Of a fuzz target in its manifest."""


def fail(what: str) -> NoReturn:
    """End with a wrong argument."""
    sys.exit(f"error: {what}")


def create(root: Path, name: str) -> list[Path]:
    """Write the model's files and its lines in the lists; the paths that changed."""
    if not re.fullmatch(r"[a-z][a-z0-9]{1,19}", name) or keyword.iskeyword(name) or name in RUST.split():
        fail(f"{name!r} cannot name a model: use 2 to 20 lower-case letters and digits, like sntp")
    model = root / "crates/protocol/src" / f"{name}.rs"
    if model.exists():
        fail(f"there is a module {name} already: crates/protocol/src/{name}.rs")
    fuzz = root / "fuzz/fuzz_targets" / f"{name}.rs"
    preset = root / "profiles" / f"{name}.json"
    library, registry, targets = (
        root / path for path in ("crates/protocol/src/lib.rs", "crates/models/src/lib.rs", "fuzz/Cargo.toml")
    )
    insert_module(library, name)
    register(registry, name)
    model.write_text(TEMPLATE.read_text().replace("NAME", name))
    fuzz.write_text(
        f"//! What comes from a server must not break a `{name}` device.\n#![no_main]\n\n"
        f'libfuzzer_sys::fuzz_target!(|data: &[u8]| models::fuzz("{name}", data));\n'
    )
    lines = ("[[bin]]", f'name = "{name}"', f'path = "fuzz_targets/{name}.rs"', *BIN)
    targets.write_text(targets.read_text().rstrip("\n") + "\n\n" + "\n".join(lines) + "\n")
    preset.write_text(json.dumps(profile(name), indent=2) + "\n")
    return [model, library, registry, fuzz, targets, preset]


def insert_module(library: Path, name: str) -> None:
    """Add `pub mod NAME;` where it stands in the order of the alphabet."""
    lines = library.read_text().splitlines()
    modules = [(i, line) for i, line in enumerate(lines) if re.fullmatch(r"pub mod \w+;", line)]
    at = next((i for i, line in modules if line > f"pub mod {name};"), modules[-1][0] + 1)
    while lines[at - 1].startswith("#["):
        at -= 1
    lines.insert(at, f"pub mod {name};")
    library.write_text("\n".join(lines) + "\n")


def register(registry: Path, name: str) -> None:
    """Add the model at the end of the registry."""
    text, count = re.subn(
        r"(?ms)^(registry! \{\n.*?)^\}$",
        rf"\g<1>    /// {name} client over UDP.\n    {name.capitalize()}(protocol::{name}),\n}}",
        registry.read_text(),
    )
    if count != 1:
        fail(f"{registry} has no list of models")
    registry.write_text(text)


def profile(name: str) -> dict[str, object]:
    """A preset: ten clients, ten requests per second each."""
    return {
        "name": name,
        "description": f"Ten {name} clients with ten requests per second each.",
        "seed": 1,
        "phases": {"warmup": "1s", "measure": "10s", "drain": "2s", "sample": "1s"},
        "targets": {"server": f"{name}://127.0.0.1"},
        "transport": {"sockets": {}},
        "groups": [
            {
                "name": name,
                "model": {name: {"interval": "100ms"}},
                "target": "server",
                "devices": 10,
                "load": {"closed": {"ramp": "1s"}},
            }
        ],
        "thresholds": [
            {"metric": f"{name}.delay.response.p99", "max": "100ms"},
            {"metric": f"{name}.errors", "max": 0},
        ],
    }


def main() -> None:
    """Create the model and say how to go on."""
    if len(sys.argv) != 2:
        fail("./do new-model takes one word, the name of the model: ./do new-model sntp")
    name = sys.argv[1]
    for path in create(ROOT, name):
        print(path.relative_to(ROOT))
    subprocess.run(["cargo", "fmt", "--all"], cwd=ROOT, check=True)
    print(f"\nNow: cargo test -p protocol --lib {name}, cargo test -p models --lib, then ./do schema")


if __name__ == "__main__":
    main()
