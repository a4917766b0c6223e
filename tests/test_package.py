"""The package as it is installed: what it needs comes with it."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from lab import NETDYNOD, PATIENT, ROOT
from package_lab import PARTS, PYTHON, setuptools

from netdyno.fleet import kubernetes

ONE = {
    "name": "one",
    "phases": {"warmup": "0s", "measure": "200ms", "drain": "1s", "sample": "100ms"},
    "targets": {"host": "ping://127.0.0.1"},
    "groups": [{"name": "echo", "target": "host", "devices": 1, "model": {"ping": {}}}],
    "validity": PATIENT,
}


@pytest.mark.limit(600)
def test_an_installed_package_has_its_presets(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    site = tmp_path / "site"
    wheel = setuptools("wheel", tmp_path / "wheels")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    environment = os.environ | {
        "PYTHONPATH": str(site), "PATH": f"{Path(NETDYNOD).parent}:{os.environ['PATH']}",
        "NETDYNO_STATE": str(tmp_path / "state"), "NETDYNO_RUNS": str(tmp_path / "runs"),
    }  # fmt: skip
    environment.pop("NETDYNO_DAEMON", None)

    def netdyno(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "netdyno", *arguments],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=150,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = "import netdyno; print(netdyno.__file__)"
    found = subprocess.run([sys.executable, "-c", where], env=environment, capture_output=True, text=True)
    assert found.stdout.startswith(str(site))
    named = "from netdyno.tuning import tables; print(*tables.names())"
    found = subprocess.run([sys.executable, "-c", named], env=environment, capture_output=True, text=True)
    assert found.stdout.split() == ["paper"]
    # programs for the kernel come with the wheel, and are compiled the same wherever they lie
    (source,) = site.glob("netdyno/tuning/bpf/*.bpf.c")
    sys.path.insert(0, str(ROOT / "packaging"))
    import common

    made = [common.kernel_programs(one) for one in (source, ROOT / "python" / source.relative_to(site))]
    assert made[0] == made[1] and made[0].startswith(b"\x7fELF")
    files = [path for part in PARTS[1:3] for path in (ROOT / part).iterdir()]
    presets = sorted(path.stem for path in files if path.suffix in (".json", ".yaml"))
    assert netdyno("validate", *presets).splitlines() == [f"{name}: good" for name in presets]
    assert "net.core.somaxconn" in netdyno("tune", "params", "--class", "latency")
    assert "groups:" in netdyno("init", "iot-mixed", "-o", "-")
    # a run from end to end, its report with it
    profile = tmp_path / "one.json"
    profile.write_text(json.dumps(ONE))
    netdyno("run", str(profile), "-q")
    (folder,) = (tmp_path / "runs").iterdir()
    assert "<html" in (folder / "report.html").read_text()


def installed(package: Path, folder: Path) -> Path:
    """A fresh environment with a package, and what it needs from the index; returns its programs."""
    subprocess.run([PYTHON, "-m", "venv", folder / "venv"], check=True)
    programs = folder / "venv/bin"
    done = subprocess.run([programs / "pip", "install", "--quiet", package], capture_output=True, text=True)
    if done.returncode and ("Temporary failure" in done.stderr or "NewConnectionError" in done.stderr):
        pytest.skip("the index of Python packages cannot be reached")
    assert done.returncode == 0, done.stderr
    return programs


@pytest.mark.full
@pytest.mark.limit(1200)
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_a_fresh_environment_runs_over_loopback(kind: str, tmp_path: Path) -> None:
    built = setuptools(kind, tmp_path / "plain")
    environment = {key: value for key, value in os.environ.items() if key != "NETDYNO_DAEMON"}
    environment |= {"NETDYNO_STATE": str(tmp_path / "state"), "NETDYNO_RUNS": str(tmp_path / "runs")}
    if kind == "wheel":
        words = [PYTHON, ROOT / "packaging/wheel.py", "--daemon", NETDYNOD, "--wheel", built]
        done = subprocess.run([*words, "--into", tmp_path], capture_output=True, text=True, check=True)
        made = Path(done.stdout.strip())
        again = subprocess.run(
            [*words, "--into", tmp_path / "again"], capture_output=True, text=True, check=True
        )
        assert Path(again.stdout.strip()).read_bytes() == made.read_bytes()
        subprocess.run(["sha256sum", "--quiet", "--check", "SHA256SUMS"], cwd=tmp_path, check=True)
        crates = json.loads((tmp_path / f"{made.stem}.spdx.json").read_text())["packages"]
        assert {"netdyno", "netdynod", "rustls"} <= {one["name"] for one in crates}
        built = made
    programs = installed(built, tmp_path)
    if kind == "sdist":
        # it has no daemon
        (programs / "netdynod").symlink_to(NETDYNOD)
    profile = tmp_path / "one.json"
    profile.write_text(json.dumps(ONE))
    command = [programs / "netdyno", "run", profile, "-q"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    assert "<html" in (folder / "report.html").read_text()
    found = subprocess.run(
        [programs / "python", "-c", "from netdyno.core import daemon; print(daemon.program())"],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert found.stdout.strip() == str(programs / "netdynod")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--for", "sarge"], "not for 'sarge'"),
        (["image", "--for", "trixie"], "--for goes with deb and wheel, not with image"),
        (["--for"], "--for DISTRIBUTION"),
        (["deb", "--portable"], "--portable goes with wheel, not with deb"),
        (["rpm"], "not 'rpm'"),
    ],
)
def test_what_no_package_can_be_made_of_is_told(words: list[str], says: str) -> None:
    done = subprocess.run([ROOT / "do", "package", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 104 and says in done.stderr, done.stderr


def test_the_image_installs_the_package() -> None:
    lines = (ROOT / "packaging/Containerfile").read_text()
    # what `./do package image` gives, and a user and group as those of the Jobs of `fleet manifest`
    assert "ARG DEB\n" in lines
    assert f"USER {kubernetes.USER}:{kubernetes.USER}\n" in lines


def test_each_package_has_a_version_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A later commit is an upgrade; those of one commit differ by distribution."""
    monkeypatch.syspath_prepend(str(ROOT / "packaging"))
    deb = importlib.import_module("deb")
    about = tmp_path / "os-release"
    about.write_text('NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="24.04"\n')
    assert deb.distribution(about) == "ubuntu24.04"
    about.write_text('ID=debian\nVERSION_ID="13"\n')
    assert deb.distribution(about) == "deb13"
    earlier, later = (
        deb.Sources(Path(), Path(), "0.1.0", seconds, commit).debian_version
        for seconds, commit in ((1_700_000_000, "ffffffff0"), (1_700_000_001, "000000000"))
    )
    assert earlier.startswith("0.1.0+git20231114221320.ffffffff0~")
    subprocess.run(["dpkg", "--compare-versions", earlier, "lt", later], check=True)
    subprocess.run(["dpkg", "--compare-versions", "0.1.0", "lt", earlier], check=True)
    subprocess.run(["dpkg", "--compare-versions", earlier, "lt", "0.1.1"], check=True)


def test_units_leave_what_was_made_to_last() -> None:
    for unit in (ROOT / "packaging/units").glob("*.service"):
        for line in unit.read_text().splitlines():
            if "netdyno restore" in line:
                assert line.endswith("netdyno restore --runs"), unit.name


@pytest.mark.parametrize(("action", "left"), [("remove", True), ("upgrade", True), ("purge", False)])
def test_a_purge_removes_tokens_and_keys(
    action: str, left: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "packaging"))
    deb = importlib.import_module("deb")
    for name in ("etc/netdyno/web/operator", "var/lib/netdyno/runs/r1/result.json", "usr/lib/netdyno/x"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("secret")
    script = deb.AFTER_REMOVAL
    for folder in ("/etc/netdyno", "/usr/lib/netdyno"):
        script = script.replace(f" {folder}", f" {tmp_path}{folder}")
    subprocess.run(["sh", "-c", script, "postrm", action], check=True)
    assert (tmp_path / "etc/netdyno").exists() == left
    assert (tmp_path / "usr/lib/netdyno").exists() == (action == "upgrade")
    assert (tmp_path / "var/lib/netdyno/runs/r1/result.json").exists()


def test_a_wheel_has_its_licence_and_no_time_before_1980(tmp_path: Path) -> None:
    built = setuptools("wheel", tmp_path / "plain")
    words = [PYTHON, ROOT / "packaging/wheel.py", "--daemon", NETDYNOD, "--wheel", built, "--into", tmp_path]
    environment = os.environ | {"SOURCE_DATE_EPOCH": "0"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(done.stdout.strip()) as packed:
        assert {one.date_time for one in packed.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        (about,) = [name for name in packed.namelist() if name.endswith(".dist-info/METADATA")]
        assert "License-File: LICENSE" in packed.read(about).decode()
        licence = packed.read(f"{about.rpartition('/')[0]}/licenses/LICENSE")
    assert licence == (ROOT / "LICENSE").read_bytes()
