"""Debian package of netdyno, for the distribution that it is built on.

    packaging/deb.py --daemon target/release/netdynod --wheel FILE.whl --into target/package

The daemon is linked to the distribution's DPDK. The Python application and what it needs stand under
`/usr/lib/netdyno/python`, so that no package of the distribution is replaced. Two builds of one commit on one
distribution are the same byte for byte: times are the commit's, owners are root, names are sorted.
"""

from __future__ import annotations

import argparse
import compileall
import gzip
import hashlib
import os
import py_compile
import re
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import manual
import sbom
from common import ROOT, BuildError, commit, commit_time, kernel_programs, run, write_sums

BILL = "sbom.spdx.json"
LIBRARY = Path("usr/lib/netdyno/python")
RECOMMENDED = ("mosquitto", "nginx-light | nginx", "librte-meta-net", "iperf3", "libbpf1")
"""For `netdyno demo`, for network cards, for kernel workloads, for programs in the kernel."""
DRIVERS = ("mempool-ring", "net-af-xdp", "net-null", "net-pcap", "net-tap", "net-vhost", "net-virtio")
"""DPDK loads these by itself, so that no library names them: memory of ports, and ports without a card.
`net-null` stands for ports of our own: over packet sockets and shared memory."""
SUGGESTED = ("kamailio", "tshark", "qemu-system-x86")
NEEDED = ("iproute2", "ethtool", "procps")

LAUNCHER = """\
#!/usr/bin/python3 -I
import os
import sys

LIBRARY = "/usr/lib/netdyno/python"
sys.path.insert(0, LIBRARY)
os.environ["PYTHONPATH"] = LIBRARY  # for the programs that it starts
from netdyno.__main__ import main  # noqa: E402

main()
"""


BEFORE_REMOVAL = """\
#!/bin/sh
set -e
# what is left would run without its programs
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl stop 'netdyno-*' netdynod.service || true
fi
if [ "$1" = remove ] && [ -d /var/lib/netdyno/journal ]; then
    /usr/bin/netdyno restore --runs || true
fi
"""

AFTER_REMOVAL = """\
#!/bin/sh
set -e
# compiled templates of reports, which it wrote while it ran
case "$1" in remove|purge) rm -rf /usr/lib/netdyno ;; esac
# tokens, keys and configurations; runs and their list stay in /var/lib/netdyno
if [ "$1" = purge ]; then rm -rf /etc/netdyno; fi
"""


@dataclass(frozen=True)
class Sources:
    """What goes into the package."""

    daemon: Path
    wheel: Path
    version: str
    time: int
    """Seconds since 1970: the commit's."""
    revision: str = ""
    """The commit, abbreviated."""

    @property
    def debian_version(self) -> str:
        """Of a later commit it is higher; the packages of one commit differ by distribution."""
        made = time.strftime("%Y%m%d%H%M%S", time.gmtime(self.time))
        return f"{self.version}+git{made}{'.' * bool(self.revision)}{self.revision}~{distribution()}"


def put(root: Path, where: str, content: str | bytes, mode: int = 0o644) -> None:
    """Write one file of the package."""
    path = root / where
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)


def packed(text: str | bytes) -> bytes:
    """Compressed, the same each time."""
    return gzip.compress(text.encode() if isinstance(text, str) else text, 9, mtime=0)


def distribution(about: Path = Path("/etc/os-release")) -> str:
    """Such as deb12 or ubuntu24.04: the distribution that the package is for."""
    facts = dict(line.split("=", 1) for line in about.read_text().splitlines() if "=" in line)
    name, number = (facts.get(key, "").strip("\"'") for key in ("ID", "VERSION_ID"))
    return {"debian": "deb"}.get(name, name) + number


def distribution_python() -> tuple[int, int]:
    """The version of the distribution's Python, which runs what is packed."""
    try:
        text = run("/usr/bin/python3", "-I", "-c", "import sys; print(*sys.version_info[:2])")
    except OSError as e:
        raise BuildError("there is no /usr/bin/python3: apt install python3") from e
    major, minor = map(int, text.split())
    if (major, minor) < (3, 11):
        raise BuildError(f"the distribution's Python is {major}.{minor}; netdyno needs 3.11 or newer")
    return major, minor


def vendor(root: Path, wheel: Path, version: tuple[int, int]) -> None:
    """The application and what it needs, compiled; tests of others are left out."""
    if sys.version_info[:2] != version:
        here = ".".join(map(str, sys.version_info[:2]))
        there = ".".join(map(str, version))
        raise BuildError(
            f"this runs with Python {here} and the distribution has {there}: binary modules would not load. "
            "Remove .venv and run `PATH=/usr/bin:$PATH ./do package`"
        )
    library = root / LIBRARY
    quiet = ("--quiet", "--no-compile", "--no-warn-script-location", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "install", *quiet, "--target", library, wheel)
    shutil.rmtree(library / "bin", ignore_errors=True)
    for source in library.glob("netdyno/*/bpf/*.bpf.c"):
        source.with_suffix(".o").write_bytes(kernel_programs(source))
    for unwanted in [*library.rglob("tests"), *library.rglob("__pycache__"), *library.rglob("*.pyi")]:
        if unwanted.is_dir():
            shutil.rmtree(unwanted)
        elif unwanted.exists():
            unwanted.unlink()
    for record in library.glob("*.dist-info"):
        for name in ("RECORD", "direct_url.json", "INSTALLER", "REQUESTED"):
            (record / name).unlink(missing_ok=True)
    compileall.compile_dir(
        library, quiet=2, stripdir=str(root), prependdir="/", workers=1,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )  # fmt: skip


def libraries(daemon: Path) -> list[str]:
    """Packages of the libraries that the daemon is linked to, with their versions."""
    work = daemon.parent / "shlibdeps"
    (work / "debian").mkdir(parents=True, exist_ok=True)
    (work / "debian/control").write_text("Source: netdyno\n\nPackage: netdyno\nArchitecture: any\n")
    said = run("dpkg-shlibdeps", "-O", "-e", daemon.resolve(), cwd=work)
    shutil.rmtree(work)
    found = re.search(r"^shlibs:Depends=(.*)$", said, re.MULTILINE)
    if not found:
        raise BuildError(f"dpkg-shlibdeps named no libraries: {said.strip()}")
    needs = found[1].split(", ")
    # the drivers' packages carry the ABI of the libraries in their names, such as librte-eal23
    eal = re.search(r"librte-eal(\S+)", found[1])
    return needs + ([f"librte-{driver}{eal[1]}" for driver in DRIVERS] if eal else [])


def control(root: Path, sources: Sources, python: tuple[int, int], needs: list[str]) -> str:
    """The package's description."""
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    major, minor = python
    depends = [
        f"python3 (>= {major}.{minor})",
        f"python3 (<< {major}.{minor + 1})",
        *NEEDED,
        *needs,
    ]
    architecture = run("dpkg", "--print-architecture").strip()
    return "\n".join(
        [
            "Package: netdyno",
            f"Version: {sources.debian_version}",
            f"Architecture: {architecture}",
            "Maintainer: netdyno project <netdyno@example.org>",
            "Section: net",
            "Priority: optional",
            f"Installed-Size: {size // 1024}",
            f"Depends: {', '.join(depends)}",
            f"Recommends: {', '.join(RECOMMENDED)}",
            f"Suggests: {', '.join(SUGGESTED)}",
            "Description: open network performance lab",
            " netdyno applies a known load to a network, measures what the network really delivers,",
            " and tunes it: load generator over kernel sockets and DPDK, carrier-grade NAT, SIP tester,",
            " and kernel tuning with proof.",
            "",
        ]
    )


def fill(root: Path, sources: Sources, python: tuple[int, int]) -> None:
    """The package's files."""
    put(root, "usr/bin/netdyno", LAUNCHER, 0o755)
    put(root, "usr/bin/netdynod", sources.daemon.read_bytes(), 0o755)
    run("strip", "--strip-unneeded", root / "usr/bin/netdynod")
    vendor(root, sources.wheel, python)
    put(root, "usr/share/man/man1/netdyno.1.gz", packed(manual.page(sources.version, sources.time)))
    for shell, where in manual.COMPLETIONS.items():
        put(root, where, manual.completion(shell))
    for unit in sorted((ROOT / "packaging/units").glob("*.service")):
        put(root, f"usr/lib/systemd/system/{unit.name}", unit.read_bytes())
    documents = "usr/share/doc/netdyno"
    put(root, f"{documents}/copyright", (ROOT / "LICENSE").read_bytes())
    put(root, f"{documents}/changelog.gz", packed((ROOT / "CHANGELOG.md").read_bytes()))
    put(root, f"{documents}/{BILL}", sbom.document(root / LIBRARY, sources.version, sources.time))


def build(sources: Sources, into: Path) -> Path:
    """Build the package; returns its file, beside which its bill of materials stands."""
    python = distribution_python()
    needs = libraries(sources.daemon)
    root = into / "root"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    fill(root, sources, python)
    put(root, "DEBIAN/control", control(root, sources, python, needs))
    put(root, "DEBIAN/prerm", BEFORE_REMOVAL, 0o755)
    put(root, "DEBIAN/postrm", AFTER_REMOVAL, 0o755)
    sums = [
        f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {path.relative_to(root)}"
        for path in sorted(root.rglob("*"))
        if path.is_file() and "DEBIAN" not in path.parts
    ]
    put(root, "DEBIAN/md5sums", "\n".join(sums) + "\n")
    for path in [root, *root.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
        os.utime(path, (sources.time, sources.time), follow_symlinks=False)
    os.environ["SOURCE_DATE_EPOCH"] = str(sources.time)
    name = f"netdyno_{sources.debian_version}_{run('dpkg', '--print-architecture').strip()}.deb"
    run("dpkg-deb", "--root-owner-group", "-Zzstd", "-z15", "--build", root, into / name)
    shutil.copyfile(root / "usr/share/doc/netdyno" / BILL, into / f"{Path(name).stem}.spdx.json")
    shutil.rmtree(root)
    return into / name


def main() -> int:
    """Build the package from what the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--daemon", type=Path, required=True, help="netdynod as it was built")
    parser.add_argument("--wheel", type=Path, required=True, help="the Python application")
    parser.add_argument("--into", type=Path, required=True, help="folder for the package")
    wanted = parser.parse_args()
    version = wanted.wheel.name.split("-")[1]
    try:
        # what others made here is readable whatever their mask says
        os.umask(0o022)
        made = build(Sources(wanted.daemon, wanted.wheel, version, commit_time(), commit()), wanted.into)
        write_sums(wanted.into)
    except BuildError as e:
        print(f"error: {e}", file=sys.stderr)
        return 92
    print(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
