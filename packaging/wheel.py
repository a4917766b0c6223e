"""Wheel of netdyno with the daemon inside.

    packaging/wheel.py --daemon target/release/netdynod --wheel FILE.whl --into target/package
    packaging/wheel.py --portable --daemon target/portable/release/netdynod …

`pip install` of it brings `netdyno` and `netdynod`. A daemon linked to the distribution's libraries, DPDK's
among them, is for that distribution: the wheel's tag is `linux_x86_64`. A portable daemon needs only glibc:
the tag is `manylinux`, with the oldest glibc that has all symbols it needs. Two builds of one commit are the
same byte for byte.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import platform
import shutil
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import common
import elf
import sbom

PROGRAM = 0o755
PLAIN = 0o644
FIRST = 315532800
"""The first time that ZIP knows: 1980."""
EVENTS = "netdyno/tuning/bpf/events.bpf"
"""Programs that `tune watch` loads into the kernel."""


def stripped(daemon: Path) -> bytes:
    """The daemon without symbols."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / daemon.name
        shutil.copy(daemon, copy)
        common.run("strip", "--strip-unneeded", copy)
        return copy.read_bytes()


def record(files: dict[str, bytes], name: str) -> bytes:
    """The list of the wheel's files with their checksums (PEP 427)."""
    lines = []
    for path, content in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(content)}\n")
    return "".join([*lines, f"{name},,\n"]).encode()


def linked_parts(daemon: Path) -> list[sbom.Part]:
    """Packages of the distribution that were linked into a portable daemon."""
    listed = daemon.with_name(f"{daemon.name}.parts.json")
    try:
        found = json.loads(listed.read_text())
    except (OSError, ValueError) as e:
        raise common.BuildError(f"{listed}, which packaging/portable.py writes, cannot be read: {e}") from e
    return [("deb", name, version, licence) for name, version, licence in found]


def build(daemon: Path, wheel: Path, into: Path, seconds: int, portable: bool = False) -> Path:
    """Put the daemon into a wheel that has none; returns the new one."""
    with zipfile.ZipFile(wheel) as plain:
        files = {info.filename: plain.read(info) for info in plain.infolist() if not info.is_dir()}
    (about,) = {name.partition("/")[0] for name in files if name.partition("/")[0].endswith(".dist-info")}
    stem = about.removesuffix(".dist-info")
    system = (
        elf.tag(elf.needed(daemon), elf.oldest_glibc(daemon)) if portable else f"linux_{platform.machine()}"
    )
    tag = f"py3-none-{system}"
    of_wheel = files[f"{about}/WHEEL"].decode()
    if "Tag: py3-none-any\n" not in of_wheel:
        raise common.BuildError(f"{wheel.name} is no wheel of Python alone")
    of_wheel = of_wheel.replace("Tag: py3-none-any\n", f"Tag: {tag}\n")
    files[f"{about}/WHEEL"] = of_wheel.replace("Root-Is-Purelib: true", "Root-Is-Purelib: false").encode()
    program = f"{stem}.data/scripts/netdynod"
    files[program] = stripped(daemon)
    files[f"{EVENTS}.o"] = common.kernel_programs(common.ROOT / "python" / f"{EVENTS}.c")
    # PEP 770
    parts = linked_parts(daemon) if portable else []
    bill = sbom.document(None, stem.partition("-")[2], seconds, parts).encode()
    files[f"{about}/sboms/netdyno.spdx.json"] = bill
    del files[f"{about}/RECORD"]
    files[f"{about}/RECORD"] = record(files, f"{about}/RECORD")
    into.mkdir(parents=True, exist_ok=True)
    made = into / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for name, content in sorted(files.items()):
            info = zipfile.ZipInfo(name, time.gmtime(max(seconds, FIRST))[:6])
            info.external_attr = (0o100000 | (PROGRAM if name == program else PLAIN)) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(info, content)
    (into / f"{made.stem}.spdx.json").write_bytes(bill)
    return made


def main() -> int:
    """Build the wheel from what the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--daemon", type=Path, required=True, help="netdynod as it was built")
    parser.add_argument("--wheel", type=Path, required=True, help="the Python application")
    parser.add_argument("--portable", action="store_true", help="the daemon is of packaging/portable.py")
    parser.add_argument("--into", type=Path, required=True, help="folder for the wheel")
    wanted = parser.parse_args()
    try:
        made = build(wanted.daemon, wanted.wheel, wanted.into, common.commit_time(), wanted.portable)
        common.write_sums(wanted.into)
    except common.BuildError as e:
        print(f"error: {e}", file=sys.stderr)
        return 92
    print(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
