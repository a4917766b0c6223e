"""The package as it is installed: what it needs comes with it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from lab import NETDYNOD, PATIENT, ROOT

PARTS = ("python", "profiles", "experiments", "tunables", "schema")
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"

ONE = {
    "name": "one",
    "phases": {"warmup": "0s", "measure": "200ms", "drain": "1s", "sample": "100ms"},
    "targets": {"host": "ping://127.0.0.1"},
    "groups": [{"name": "echo", "target": "host", "devices": 1, "model": {"ping": {}}}],
    "validity": PATIENT,
}


def test_an_installed_package_has_its_presets(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    for part in PARTS:
        # caches are written while tests run
        unwanted = shutil.ignore_patterns("__pycache__", ".*_cache", "build", "*.egg-info", "tests")
        shutil.copytree(ROOT / part, tmp_path / "tree" / part, symlinks=True, ignore=unwanted)
    wheels, site = tmp_path / "wheels", tmp_path / "site"
    wheels.mkdir()
    build = [sys.executable, "-c", BUILD, str(wheels)]
    subprocess.run(
        build,
        cwd=tmp_path / "tree" / "python",
        check=True,
        capture_output=True,
        timeout=60,
    )
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    # nothing of a source tree is to be found from there
    shutil.rmtree(tmp_path / "tree")
    environment = os.environ | {
        "PYTHONPATH": str(site), "PATH": f"{Path(NETDYNOD).parent}:{os.environ['PATH']}",
        "NETDYNO_STATE": str(tmp_path / "state"), "NETDYNO_RUNS": str(tmp_path / "runs"),
    }  # fmt: skip
    environment.pop("NETDYNO_DAEMON", None)

    def netdyno(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "netdyno", *arguments],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = "import netdyno; print(netdyno.__file__)"
    found = subprocess.run([sys.executable, "-c", where], env=environment, capture_output=True, text=True)
    assert found.stdout.startswith(str(site))
    named = "from netdyno.tuning import tables; print(*tables.names())"
    found = subprocess.run([sys.executable, "-c", named], env=environment, capture_output=True, text=True)
    assert found.stdout.split() == ["paper"]
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
