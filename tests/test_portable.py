"""The portable daemon: what is linked into it, the tag of its wheel, and that it needs only glibc."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from fleet_lab import FleetLab
from lab import ROOT, Lab, root
from package_lab import PYTHON, setuptools

sys.path.insert(0, str(ROOT / "packaging"))
import elf
import portable
import wheel
from common import BuildError


def archives() -> list[str]:
    """What `crates/dpdk-sys/build.rs` builds in whole."""
    source = (ROOT / "crates/dpdk-sys/build.rs").read_text()
    (listed,) = re.findall(r"const BUILT_IN: [^=]*= \[(.*?)\];", source, re.DOTALL)
    return re.findall(r'"(\w+)"', listed)


def pkg_config(*words: str) -> str:
    """What pkg-config says of DPDK."""
    return subprocess.run(
        ["pkg-config", *words, "libdpdk"], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_every_driver_that_is_built_in_has_its_archive() -> None:
    named, folder = pkg_config("--static", "--libs").split(), Path(pkg_config("--variable=libdir"))
    assert len(archives()) > 20
    for name in archives():
        assert f"-l:lib{name}.a" in named and (folder / f"lib{name}.a").is_file(), name


@pytest.mark.parametrize(
    ("libraries", "glibc", "expected"),
    [
        (["libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"], (2, 34), "manylinux_2_34_"),
        (["libc.so.6"], (2, 17), "manylinux_2_17_"),
    ],
)
def test_the_tag_is_of_the_oldest_glibc(libraries: list[str], glibc: tuple[int, int], expected: str) -> None:
    assert elf.tag(libraries, glibc) == expected + os.uname().machine


def test_a_daemon_that_needs_other_libraries_is_refused() -> None:
    with pytest.raises(BuildError, match=r"needs libpcap\.so\.0\.8, librte_eal\.so\.23, which"):
        elf.tag(["librte_eal.so.23", "libc.so.6", "libpcap.so.0.8"], (2, 36))


def compiled(folder: Path, source: str) -> Path:
    """A program in C."""
    (folder / "program.c").write_text(source)
    subprocess.run(["cc", "-o", folder / "program", folder / "program.c"], check=True)
    return folder / "program"


def test_needs_are_read_from_the_program(tmp_path: Path) -> None:
    program = compiled(
        tmp_path,
        """
        #define _GNU_SOURCE
        #include <stdio.h>
        #include <sys/random.h>
        int main(void) { char byte; return getrandom(&byte, 1, 0) != 1 || puts("") < 0; }
        """,
    )
    assert elf.needed(program) == ["libc.so.6"]
    # getrandom came with 2.25; what the C compiler adds by itself, such as the start of main, with 2.34 at most
    assert (2, 25) <= elf.oldest_glibc(program) <= (2, 34)
    (tmp_path / "empty.c").write_text("int nothing;")
    subprocess.run(["cc", "-c", "-o", tmp_path / "empty.o", tmp_path / "empty.c"], check=True)
    with pytest.raises(BuildError, match="no symbols of glibc"):
        elf.oldest_glibc(tmp_path / "empty.o")


def test_parts_are_packages_of_the_distribution_with_licences() -> None:
    found = portable.parts(["rte_eal", "rte_net_ring", "numa", "pcap"], "1.10.3-1")
    assert [name for name, _, _ in found] == ["dpdk", "libpcap", "numactl"]
    assert all(version and licence != "NOASSERTION" for _, version, licence in found)
    assert found[1] == ("libpcap", "1.10.3-1", "BSD-3-Clause")


def test_parts_that_were_not_listed_are_told(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"netdynod\.parts\.json, which packaging/portable\.py writes"):
        wheel.linked_parts(tmp_path / "netdynod")


@pytest.fixture(scope="module")
def daemon() -> Path:
    """The portable daemon, not optimised."""
    if not shutil.which("flex") or not shutil.which("bison"):
        pytest.skip("libpcap is built by flex and bison: apt install flex bison")
    done = subprocess.run(
        [PYTHON, ROOT / "packaging/portable.py", "--profile", "dev"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return Path(done.stdout.strip())


@pytest.mark.full
@pytest.mark.limit(3600)
def test_the_portable_daemon_needs_only_glibc(daemon: Path, tmp_path: Path) -> None:
    elf.tag(elf.needed(daemon), elf.oldest_glibc(daemon))

    def told(*words: str) -> object:
        return json.loads(subprocess.run([daemon, *words], capture_output=True, check=True).stdout)

    drivers = {one["name"] for one in told("dpdk")["built_in"]}  # type: ignore[index]
    assert {"net_af_packet", "net_ixgbe", "net_memif", "net_ring", "net_tap"} <= drivers
    # each kind of port that opens, opens without a plug-in
    (pair,) = [one for one in told("ports") if one["name"] == "pair"]  # type: ignore[attr-defined]
    assert pair["error"] is None and pair["driver"] == "net_ring"
    words = [PYTHON, ROOT / "packaging/wheel.py", "--portable", "--daemon", daemon]
    words += ["--wheel", setuptools("wheel", tmp_path / "plain"), "--into", tmp_path]
    made = Path(subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip())
    assert "-manylinux_2_" in made.name
    with zipfile.ZipFile(made) as packed:
        (name,) = [one for one in packed.namelist() if one.endswith(".spdx.json")]
        bill = {one["name"]: one for one in json.loads(packed.read(name))["packages"]}
    assert bill["dpdk"]["licenseDeclared"] == "BSD-3-Clause"
    assert bill["libpcap"]["externalRefs"][0]["referenceLocator"].startswith("pkg:deb/")


@root
@pytest.mark.full
@pytest.mark.limit(3600)
def test_hosts_without_the_libraries_get_a_daemon_that_runs(daemon: Path, lab: Lab) -> None:
    fleet = FleetLab(lab)
    libraries = Path(pkg_config("--variable=libdir"))
    found = [one for name in ("librte_*", "libpcap*", "libnuma*") for one in libraries.glob(f"{name}.so*")]
    fleet.hidden = sorted({one.resolve() for one in found})
    assert len(fleet.hidden) > 20
    # the host that gets a copy
    host = fleet.sshd()[:1]
    fleet.write(host)
    plain = fleet.run("fleet", "up", fleet.file)
    assert plain.code == 92 and "./do package wheel --portable" in plain.text, plain.text
    lab.environment["NETDYNO_DAEMON"] = str(daemon)
    fleet.up(host)
    done = fleet.run(*fleet.load(1))
    assert done.code == 0, done.text
    assert fleet.counted() == {"a": done.trial.groups[0].measured.messages_delivered}
    assert fleet.run("fleet", "down", fleet.name).code == 0
    fleet.clean()
