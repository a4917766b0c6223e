"""The CI recipes of examples/ci: their steps are run as CI runs them; then once against a real server."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import yaml
from inconclusive import Verdict
from lab import Lab, until
from ports import free_port

from netdyno.core.result import Result

TOP = Path(__file__).resolve().parents[1]
CI = TOP / "examples/ci"
STUB = """#!/bin/sh
echo "$(basename "$0") $*" >>"$CALLS"
case "$*" in
"run list"*) echo 7 ;;
"run download"*) mkdir -p baseline; echo '{}' >baseline/result.json ;;
esac
previous=
for word in "$@"; do
    [ "$previous" != --markdown ] || echo "## $1" >"$word"
    previous=$word
done
case $1 in
run) [ "$(basename "$0")" = gh ] || { echo '{}'; exit "${RUN_CODE:-0}"; } ;;
compare) exit "${COMPARE_CODE:-0}" ;;
esac
"""


def steps() -> dict[str, str]:
    """The commands of the GitHub recipe by the names of their steps."""
    found = yaml.safe_load((CI / "github-actions.yml").read_text())["jobs"]["load-test"]["steps"]
    return {one["name"]: one["run"] for one in found if "run" in one}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A project as the recipes want it."""
    (tmp_path / "ci").mkdir()
    for name in ("load.yaml", "load-test"):
        shutil.copy(CI / name, tmp_path / "ci" / name)
    (tmp_path / "bin").mkdir()
    for name in ("netdyno", "gh", "curl"):
        file = tmp_path / "bin" / name
        file.write_text(STUB)
        file.chmod(0o755)
    return tmp_path


def shell(checkout: Path, command: str, **more: str) -> tuple[int, list[str]]:
    """The exit code of a command, and the programs that it called."""
    calls = checkout / "calls"
    calls.write_text("")
    environment = {
        **os.environ, "PATH": f"{checkout / 'bin'}:{os.environ['PATH']}", "CALLS": str(calls),
        "GITHUB_STEP_SUMMARY": str(checkout / "step.md"), "GITHUB_REPOSITORY": "me/app",
        "GITHUB_WORKFLOW": "load test", "CI_JOB_TOKEN": "t", "CI_API_V4_URL": "http://127.0.0.1:1/api/v4",
        "CI_PROJECT_ID": "3", "CI_DEFAULT_BRANCH": "main", **more,
    }  # fmt: skip
    done = subprocess.run(["bash", "-e", "-c", command], cwd=checkout, env=environment, check=False)
    return done.returncode, calls.read_text().splitlines()


@pytest.mark.parametrize(
    ("run", "compare", "code"), [("0", "0", 0), ("99", "0", 99), ("90", "0", 90), ("0", "99", 99)]
)
def test_the_github_job_ends_as_verdict_and_comparison_do(
    checkout: Path, run: str, compare: str, code: int
) -> None:
    assert shell(checkout, steps()["Get the baseline"])[0] == 0
    assert (checkout / "baseline/result.json").is_file()
    ended, calls = shell(checkout, steps()["Load test"], RUN_CODE=run, COMPARE_CODE=compare)
    assert ended == code
    compared = [one for one in calls if one.startswith("netdyno compare")]
    # only what passed is compared
    assert bool(compared) == (run == "0")
    assert all("--fail" in one and "baseline/result.json report/result.json" in one for one in compared)
    assert shell(checkout, steps()["Summary"])[0] == 0
    assert (checkout / "step.md").read_text().split() == ["##", "run", "##", "compare"][
        : 4 if compared else 2
    ]


def test_without_a_baseline_nothing_is_compared(checkout: Path) -> None:
    code, calls = shell(checkout, steps()["Load test"])
    assert code == 0 and len(calls) == 1 and calls[0].startswith("netdyno run ci/load.yaml --repeat 5")
    # an empty file, as of a download that failed, is none
    (checkout / "baseline").mkdir()
    (checkout / "baseline/result.json").touch()
    assert len(shell(checkout, steps()["Load test"])[1]) == 1


def test_the_gitlab_job_uploads_what_the_next_one_downloads(checkout: Path) -> None:
    job = yaml.safe_load((CI / "gitlab-ci.yml").read_text())["load-test"]
    code, calls = shell(checkout, "\n".join(job["script"]))
    assert code == 0
    asked = next(one for one in calls if one.startswith("curl"))
    assert "jobs/artifacts/main/raw/report/result.json?job=load-test" in asked
    assert job["artifacts"]["paths"] == ["report"] and (checkout / "report/result.json").is_file()
    assert job["artifacts"]["reports"]["junit"] == "report/verdict.xml"


def test_what_is_not_compared_or_not_measured_is_told(checkout: Path) -> None:
    assert shell(checkout, "ci/load-test ci/load.yaml nothing.json report")[0] == 0
    assert (
        "Not compared: there is no baseline at `nothing.json`."
        in (checkout / "report/summary.md").read_text()
    )
    netdyno = checkout / "bin/netdyno"
    netdyno.write_text("#!/bin/sh\nexit 104\n")
    assert shell(checkout, "ci/load-test ci/load.yaml nothing.json report")[0] == 104
    assert "Not measured" in (checkout / "report/summary.md").read_text()
    assert shell(checkout, "ci/load-test ci/load.yaml")[0] == 104


def test_a_package_with_another_checksum_is_not_installed(checkout: Path) -> None:
    install = steps()["Install netdyno"].replace("sudo ", "echo ").replace("/tmp/netdyno.deb", "netdyno.deb")
    (checkout / "netdyno.deb").write_text("another")
    assert shell(checkout, install, NETDYNO_DEB="x", NETDYNO_SHA256="0" * 64)[0] == 1
    right = hashlib.sha256(b"another").hexdigest()
    assert shell(checkout, install, NETDYNO_DEB="x", NETDYNO_SHA256=right)[0] == 0


def test_what_github_keeps_is_what_it_downloads() -> None:
    job = yaml.safe_load((CI / "github-actions.yml").read_text())["jobs"]["load-test"]
    (upload,) = [one for one in job["steps"] if "upload-artifact" in one.get("uses", "")]
    assert f"--name {upload['with']['name']} " in steps()["Get the baseline"]
    assert "report/*" in upload["with"]["path"]
    for name, commands in steps().items():
        done = subprocess.run(["bash", "-n"], input=commands, text=True, capture_output=True, check=False)
        assert done.returncode == 0, f"{name}: {done.stderr}"


def test_a_real_job_has_a_verdict_then_a_comparison(lab: Lab, checkout: Path, verdict: Verdict) -> None:
    port = free_port()
    lab.spawn(sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1")
    profile: dict[str, Any] = yaml.safe_load((CI / "load.yaml").read_text())
    profile["targets"]["app"] = f"http://127.0.0.1:{port}/"
    profile["phases"] = {"warmup": "200ms", "measure": "500ms", "drain": "200ms"}
    (checkout / "ci/load.yaml").write_text(yaml.safe_dump(profile))
    (checkout / "bin/netdyno").unlink()
    (checkout / "bin/netdyno").symlink_to(Path(sys.executable).parent / "netdyno")
    more = {"REPEAT": "1", "NETDYNO_STATE": str(lab.base / "state")}
    until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, 20, "the server does not listen")
    for compared in (False, True):
        code, _ = shell(checkout, steps()["Load test"], **more)
        result = Result.model_validate_json((checkout / "report/result.json").read_text())
        verdict.valid(result.reasons)
        assert code in (0, 99)
        summary = (checkout / "report/summary.md").read_text()
        assert summary.startswith("## netdyno ci: ") and "app.delay.response.p95 max 500 ms" in summary
        assert ("than the baseline" in summary) == (compared and result.verdict == "pass")
        assert ET.parse(checkout / "report/verdict.xml").getroot().get("name") == "netdyno.ci"
        (checkout / "baseline").mkdir(exist_ok=True)
        shutil.copy(checkout / "report/result.json", checkout / "baseline/result.json")
