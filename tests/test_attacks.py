"""The attack corpus: files, environments and lines that mean harm. Each is a file in `tests/attacks`, played as an
unprivileged user and as root in namespaces of its own. Nothing outside the run's folder changes.

A case is YAML: `what` it tries, `files` to plant (text, or one of `link`, `fifo`, `hole`, `folder`, `repeat` with
`owner` and `mode`), the `environment`, a `command` or lines of `rpc`, the exit `code`, and what it `says`. `@here@`,
`@canary@`, `@state@`, `@tmp@`, `@runs@` and `@uid@` stand for places. `as: [root]` or `[user]` where it is for one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab import NETDYNOD, ROOT

FOLDER = Path(__file__).with_name("attacks")
CASES = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob("*.yaml"))}
KEYS = {"what", "files", "environment", "command", "rpc", "code", "says", "as"}
NOBODY = 65534
CPU, MEMORY = 20, 256 << 20
"""Seconds of a processor and bytes for a refusal: many times what one takes."""
SANDBOX = """
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs "$1"
mkdir "$1/etc" "$1/work"
mount -t overlay -o "lowerdir=/etc,upperdir=$1/etc,workdir=$1/work" overlay /etc 2>/dev/null ||
    { cp -a /etc/. "$1/etc/" && mount --bind "$1/etc" /etc; } || exit 97
mount -t sysfs sysfs /sys 2>/dev/null || true
ip link set lo up
shift
exec "$@"
"""
USERS = ("root", "user")


@pytest.fixture
def base() -> Iterator[Path]:
    one = Path(tempfile.mkdtemp(prefix="nda-", dir="/tmp"))
    yield one
    shutil.rmtree(one)


def prefix(user: str, base: Path) -> list[str]:
    """What runs a program as this user: as root in a sandbox, else without any right."""
    if user == "root":
        if os.geteuid():
            pytest.skip("root is needed for a sandbox")
        (base / "sandbox").mkdir()
        return ["unshare", "-mnu", "sh", "-ec", SANDBOX, "sh", str(base / "sandbox")]
    if os.geteuid():
        return []
    os.chown(base, NOBODY, NOBODY)
    dropped = [
        "setpriv",
        f"--reuid={NOBODY}",
        f"--regid={NOBODY}",
        "--clear-groups",
        "--inh-caps=-all",
    ]
    return [
        "unshare",
        "-mn",
        "sh",
        "-ec",
        reach(base),
        "sh",
        *dropped,
        "--bounding-set=-all",
        "--no-new-privs",
    ]


def reach(base: Path) -> str:
    """A script that shows a user without rights the programs that lie in somebody's private folder."""
    wanted = {Path(one).resolve() for one in (sys.base_prefix, sys.prefix, ROOT)}
    hidden = {
        one: next((up for up in reversed(one.parents) if not up.stat().st_mode & 0o001), None)
        for one in wanted
    }
    lines = ["mount --make-rprivate /"]
    covered = [(number, one) for number, one in enumerate(sorted(wanted)) if hidden[one]]
    for number, one in covered:
        (base / f"bind{number}").mkdir()
        lines.append(f"mount --bind '{one}' '{base}/bind{number}'")
    lines += [
        f"mount -t tmpfs -o mode=755 tmpfs '{up}'" for up in sorted({str(up) for up in hidden.values() if up})
    ]
    for number, one in covered:
        lines.append(f"mkdir -p '{one}' && mount --bind '{base}/bind{number}' '{one}'")
    return "\n".join([*lines, "ip link set lo up", 'exec "$@"'])


@pytest.mark.sampled(30)
@pytest.mark.limit(240)
@pytest.mark.parametrize(
    ("name", "user"),
    [(name, user) for name, case in CASES.items() for user in case.get("as", USERS)],
)
def test_nothing_outside_the_run_changes(name: str, user: str, base: Path) -> None:
    case = CASES[name]
    environment = {
        **os.environ,
        "NETDYNO_DAEMON": NETDYNOD,
        "PYTHONPATH": str(ROOT / "python"),
    }
    (base / "play").mkdir()
    if user == "user" and not os.geteuid():
        os.chown(base / "play", NOBODY, NOBODY)
    done = subprocess.run(
        [*prefix(user, base), sys.executable, str(FOLDER / "play.py"), str(base / "play"), json.dumps(case)],
        env=environment, capture_output=True, text=True, cwd="/",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    words = told["out"] + told["err"]
    wanted = case.get("code", 104)
    assert told["code"] in (wanted if isinstance(wanted, list) else [wanted]), words
    assert case.get("says", "") in words
    assert "Traceback" not in words
    assert "unexpected" not in words
    assert told["changed"] == [], words
    assert told["leaked"] == []
    assert told["left"] == []
    if told["code"] == 104:
        assert told["cpu"] < CPU
        assert told["memory"] < MEMORY


def test_every_case_says_what_it_tries() -> None:
    assert len(CASES) >= 30
    for name, case in CASES.items():
        assert case["what"].endswith("."), name
        assert ("command" in case) != ("rpc" in case), name
        assert set(case) <= KEYS, name


@pytest.mark.root
@pytest.mark.parametrize(
    ("act", "what"),
    [
        ("open('../canary/victim', 'a').write('x')", "canary/victim"),
        ("open('/etc/hostname', 'a').write('x')", "/etc/hostname"),
        (
            "open('/proc/sys/kernel/domainname', 'w').write('attacked')",
            "kernel/domainname",
        ),
        ("open('/proc/sys/net/core/somaxconn', 'w').write('77')", "core/somaxconn"),
        ("open('new', 'w').write('x')", "here/new"),
    ],
)
def test_the_sandbox_sees_what_an_attack_would_do(act: str, what: str, base: Path) -> None:
    """A check that cannot fail would be none: something that does change things is seen."""
    code = f"import play, json, sys; from pathlib import Path; play.command = lambda place: __import__('os').chdir(place.here) or exec({act!r}) or {{}}; print(json.dumps(play.main(Path(sys.argv[1]), {{'files': {{}}}})))"
    (base / "play").mkdir()
    done = subprocess.run(
        [*prefix("root", base), sys.executable, "-c", code, str(base / "play")],
        env={**os.environ, "PYTHONPATH": str(FOLDER)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert any(one.endswith(what) for one in json.loads(done.stdout)["changed"]), done.stdout
