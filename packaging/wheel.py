"""Wheel of netdyno with the daemon inside, for the distribution that it is built on.

    packaging/wheel.py --daemon target/release/netdynod --wheel FILE.whl --into target/package

`pip install` of it brings `netdyno` and `netdynod`. The daemon is linked to the distribution's libraries,
DPDK's among them: the wheel's tag is of the machine, `linux_x86_64`, and not of `manylinux`. Two builds of
one commit are the same byte for byte.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import platform
import shutil
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import common
import sbom

PROGRAM = 0o755
PLAIN = 0o644
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


def build(daemon: Path, wheel: Path, into: Path, seconds: int) -> Path:
    """Put the daemon into a wheel that has none; returns the new one."""
    with zipfile.ZipFile(wheel) as plain:
        files = {info.filename: plain.read(info) for info in plain.infolist() if not info.is_dir()}
    (about,) = {name.partition("/")[0] for name in files if name.partition("/")[0].endswith(".dist-info")}
    stem = about.removesuffix(".dist-info")
    tag = f"py3-none-linux_{platform.machine()}"
    of_wheel = files[f"{about}/WHEEL"].decode()
    if "Tag: py3-none-any\n" not in of_wheel:
        raise common.BuildError(f"{wheel.name} is no wheel of Python alone")
    of_wheel = of_wheel.replace("Tag: py3-none-any\n", f"Tag: {tag}\n")
    files[f"{about}/WHEEL"] = of_wheel.replace("Root-Is-Purelib: true", "Root-Is-Purelib: false").encode()
    program = f"{stem}.data/scripts/netdynod"
    files[program] = stripped(daemon)
    files[f"{EVENTS}.o"] = common.kernel_programs(common.ROOT / "python" / f"{EVENTS}.c")
    # PEP 770
    bill = sbom.document(None, stem.partition("-")[2], seconds).encode()
    files[f"{about}/sboms/netdyno.spdx.json"] = bill
    del files[f"{about}/RECORD"]
    files[f"{about}/RECORD"] = record(files, f"{about}/RECORD")
    into.mkdir(parents=True, exist_ok=True)
    made = into / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for name, content in sorted(files.items()):
            info = zipfile.ZipInfo(name, time.gmtime(seconds)[:6])
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
    parser.add_argument("--into", type=Path, required=True, help="folder for the wheel")
    wanted = parser.parse_args()
    try:
        made = build(wanted.daemon, wanted.wheel, wanted.into, common.commit_time())
        common.write_sums(wanted.into)
    except common.BuildError as e:
        print(f"error: {e}", file=sys.stderr)
        return 92
    print(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
