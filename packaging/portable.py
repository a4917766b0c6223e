"""Build a daemon that needs no library but glibc's: DPDK with a few drivers and libpcap are part of it.

    packaging/portable.py [--profile dev]

Prints the path of `netdynod`. `netdynod.parts.json` beside it lists the distribution's packages that were
linked into it. libpcap is built from the distribution's source, since the distribution's archive needs D-Bus.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import common

TARGET = common.ROOT / "target/portable"
PCAP = "libpcap"
WITHOUT = (
    "--disable-shared", "--disable-dbus", "--disable-rdma", "--disable-usb", "--disable-bluetooth",
    "--disable-netmap", "--without-libnl", "--without-dpdk", "--without-dag", "--without-septel",
    "--without-snf", "--without-turbocap",
)  # fmt: skip
"""Kinds of devices that packets are not captured on here; each would need a library."""
LICENCES = {
    "device-tree-compiler": "GPL-2.0-or-later OR BSD-2-Clause",
    "dpdk": "BSD-3-Clause",
    "elfutils": "GPL-2.0-or-later OR LGPL-3.0-or-later",
    "libbpf": "LGPL-2.1-only OR BSD-2-Clause",
    "libbsd": "BSD-3-Clause",
    "libmd": "BSD-3-Clause",
    "libpcap": "BSD-3-Clause",
    "libzstd": "BSD-3-Clause OR GPL-2.0-only",
    "numactl": "LGPL-2.1-only",
    "xdp-tools": "LGPL-2.1-only OR BSD-2-Clause",
    "zlib": "Zlib",
}
"""Of the libraries in source packages, as they declare them."""
SOURCES = "deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)\t$(ORIGIN)"


def fetch_source(name: str, into: Path) -> tuple[Path, str]:
    """Unpack a source package of the distribution, whose checksums apt compares; its folder and version."""
    lists = into / "apt"
    (lists / "lists/partial").mkdir(parents=True, exist_ok=True)
    known = common.run("apt-get", "indextargets", "--format", SOURCES, "Created-By: Packages")
    lines = [line.partition("\t") for line in known.splitlines()]
    own = sorted({source for source, _, origin in lines if origin in ("Debian", "Ubuntu")})
    if not own:
        raise common.BuildError("apt knows no archive of Debian or Ubuntu: apt-get update")
    (lists / "sources.list").write_text("\n".join([*own, ""]))
    options = [
        "-qq",
        *(f"-o=Dir::{key}={value}" for key, value in {
            "Etc::sourcelist": lists / "sources.list", "Etc::sourceparts": "/dev/null",
            "State::lists": lists / "lists", "Cache": lists,
        }.items()),
        f"-o=APT::Sandbox::User={os.environ.get('USER', 'root')}",
    ]  # fmt: skip
    common.run("apt-get", *options, "update")
    for old in into.glob(f"{name}_*"):
        old.unlink()
    common.run("apt-get", *options, "source", "--download-only", name, cwd=into)
    (description,) = into.glob(f"{name}_*.dsc")
    folder = into / "source"
    shutil.rmtree(folder, ignore_errors=True)
    common.run("dpkg-source", "--no-check", "-x", description, folder)
    return folder, description.stem.partition("_")[2]


def build_pcap(into: Path) -> tuple[Path, str]:
    """libpcap as an archive that needs no other library; the folder that has it, and its version."""
    made, version = into / "lib", into / "version"
    if not version.exists():
        source, found = fetch_source(PCAP, into)
        common.run("./configure", "--quiet", *WITHOUT, "CFLAGS=-O2 -g0 -fPIC", cwd=source)
        common.run("make", "-s", f"-j{os.cpu_count()}", "libpcap.a", cwd=source)
        made.mkdir(exist_ok=True)
        shutil.copy(source / "libpcap.a", made)
        version.write_text(found)
    return made, version.read_text()


def build_daemon(profile: str, pcap: Path, version: str) -> tuple[Path, list[str]]:
    """The daemon, and the names of the archives of C in it."""
    environment = os.environ | {
        "NETDYNO_DPDK": "static", "LIBPCAP_LIBDIR": str(pcap), "LIBPCAP_VER": version.partition("-")[0],
    }  # fmt: skip
    command = [
        "cargo", "build", "--package", "netdynod", "--profile", profile, "--locked",
        "--target-dir", str(TARGET), "--message-format", "json-render-diagnostics",
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=common.ROOT, env=environment, check=False, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise common.BuildError("netdynod does not build; the compiler's words are above")
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    (daemon,) = [one["executable"] for one in messages if one.get("executable")]
    told = [one for one in messages if "dpdk-sys" in one.get("package_id", "")]
    (linked,) = [one["linked_libs"] for one in told if "linked_libs" in one]
    return Path(daemon), [name.partition("=")[2] for name in linked if name.startswith("static:")]


def parts(archives: list[str], pcap: str) -> list[tuple[str, str, str]]:
    """Source packages that archives are of: name, version, licence."""
    folder = common.run("pkg-config", "--variable=libdir", "libdpdk").strip()
    files = [f"{folder}/lib{name}.a" for name in archives if name != "pcap"]
    owners = {line.rpartition(": ")[0] for line in common.run("dpkg-query", "-S", *files).splitlines()}
    shown = common.run("dpkg-query", "-W", "-f", "${source:Package} ${source:Version}\n", *sorted(owners))
    found = {(PCAP, pcap), *(tuple(line.split()) for line in shown.splitlines())}
    return sorted((name, version, LICENCES.get(name, "NOASSERTION")) for name, version in found)


def main() -> int:
    """Build what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", default="release", help="of cargo; default: release")
    wanted = parser.parse_args()
    try:
        pcap, version = build_pcap(TARGET.with_name("pcap"))
        daemon, archives = build_daemon(wanted.profile, pcap, version)
        listed = json.dumps(parts(archives, version), indent=1)
    except (common.BuildError, OSError) as e:
        print(f"error: {e}", file=sys.stderr)
        return 92
    daemon.with_name("netdynod.parts.json").write_text(listed + "\n")
    print(daemon)
    return 0


if __name__ == "__main__":
    sys.exit(main())
