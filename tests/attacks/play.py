"""Play one attack in a place of its own, and tell what became of it. Run by `tests/test_attacks.py`, in a sandbox.

What belongs to the victim, and is nothing of the run's, is looked at before and after: the canaries, the folder
that the hostile files lie in, the home, and as root /etc and the kernel's parameters.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

KERNEL = ("kernel", "vm", "fs", "net", "user", "debug", "dev")
"""Folders of /proc/sys. In a namespace of its own, `net` is what the machine's is to the victim."""
VOLATILE = {"/proc/sys/kernel/ns_last_pid"}
PASSING = 60
"""Seconds that an attack may take on a busy machine."""


class Sandbox:
    """Where the attack is played: everything below one folder, which the victim owns."""

    def __init__(self, base: Path, case: dict[str, Any]) -> None:
        self.base, self.case = base, case
        self.here, self.canary = base / "here", base / "canary"
        for name in ("here", "canary", "home", "tmp", "runs"):
            (base / name).mkdir(mode=0o700, exist_ok=True)
        for name in ("victim", "nd-victim", "netdyno.conf", "secret.csv"):
            (self.canary / name).write_text("CANARY: nothing of this may change, or be seen elsewhere\n")
        for name, what in case.get("files", {}).items():
            self._plant(self.path(name), what)

    def path(self, name: str) -> Path:
        return self.here / self.filled(name)

    def filled(self, text: str) -> str:
        """Text with the places in it, `@canary@` and their like."""
        for name in ("here", "canary", "home", "tmp", "runs", "state"):
            text = text.replace(f"@{name}@", str(self.base / name))
        return text.replace("@uid@", str(os.geteuid()))

    def _plant(self, path: Path, what: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if isinstance(what, str):
            path.write_text(self.filled(what))
            path.chmod(0o600)
            return
        if "fifo" in what:
            os.mkfifo(path)
        elif "link" in what:
            path.symlink_to(self.filled(what["link"]))
        elif "hole" in what:
            with path.open("wb") as file:
                file.truncate(what["hole"])
        elif "folder" in what:
            path.mkdir(exist_ok=True)
        elif "repeat" in what:
            path.write_text(what.get("before", "") + what["repeat"] * what["times"] + what.get("after", ""))
        else:
            path.write_text(self.filled(what["text"]))
        if "mode" in what:
            path.chmod(int(what["mode"], 8))
        if "owner" in what:
            os.chown(path, what["owner"], what["owner"], follow_symlinks=False)

    @property
    def environment(self) -> dict[str, str]:
        kept = {
            key: os.environ[key]
            for key in ("PATH", "LANG", "PYTHONPATH", "NETDYNO_DAEMON")
            if key in os.environ
        }
        made = {
            "HOME": "@home@", "TMPDIR": "@tmp@", "NETDYNO_STATE": "@state@", "NETDYNO_RUNS": "@runs@", "COLUMNS": "200",
        }  # fmt: skip
        made |= self.case.get("environment", {})
        return kept | {key: self.filled(value) for key, value in made.items() if value is not None}

    def seen(self) -> dict[str, Any]:
        """Everything that must be afterwards as it was before."""
        found = {}
        trees = [self.canary, self.here, self.base / "home"] + [Path("/etc")] * (os.geteuid() == 0)
        for tree in trees:
            for path in [tree, *tree.rglob("*")]:
                found[str(path)] = _look(path)
        if os.geteuid() == 0:
            found |= parameters()
        return found


def _look(path: Path) -> Any:
    about = path.lstat()
    what: Any = None
    if stat.S_ISREG(about.st_mode) and about.st_size < 1 << 26:
        what = hashlib.sha256(path.read_bytes()).hexdigest()
    elif stat.S_ISLNK(about.st_mode):
        what = str(path.readlink())
    # a folder's time tells of what was there for a moment, too
    return [
        about.st_mode,
        about.st_uid,
        about.st_gid,
        about.st_size,
        about.st_mtime_ns,
        what,
    ]


def parameters() -> dict[str, str]:
    """What can be set of the kernel, as it is now."""
    found = {}
    for folder in KERNEL:
        for path in Path("/proc/sys", folder).rglob("*"):
            try:
                if path.is_file() and path.stat().st_mode & 0o200 and str(path) not in VOLATILE:
                    found[str(path)] = path.read_text()
            except (OSError, UnicodeDecodeError):
                continue
    return found


def command(place: Sandbox) -> dict[str, Any]:
    """What a command says, how it ends, and what it took."""
    words = [place.filled(word) for word in place.case["command"]]
    child = subprocess.Popen(
        [sys.executable, "-m", "netdyno", *words],
        cwd=place.here, env=place.environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        out, err = child.communicate(timeout=PASSING)
        code = child.returncode
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, 9)
        out, err = child.communicate()
        code = -9
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "code": code,
        "out": out,
        "err": err,
        "cpu": used.ru_utime + used.ru_stime,
        "memory": used.ru_maxrss << 10,
    }


def rpc(place: Sandbox) -> dict[str, Any]:
    """What a daemon answers to lines, and whether it answers a good one after them."""
    path = place.base / "core.sock"
    daemon = subprocess.Popen(
        [os.environ["NETDYNO_DAEMON"], "--socket", str(path)],
        cwd=place.here, env=place.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert daemon.stdout is not None
        assert "ready" in daemon.stdout.readline()
        said: list[str] = []
        for lines in [
            place.case["rpc"],
            [{"jsonrpc": "2.0", "id": "last", "method": "core.describe"}],
        ]:
            said += _talk(
                path,
                [place.filled(line if isinstance(line, str) else json.dumps(line)) for line in lines],
            )
        alive = any('"last"' in line for line in said)
        return {
            "code": 0 if alive else 1,
            "out": "\n".join(said),
            "err": "",
            "cpu": 0.0,
            "memory": 0,
        }
    finally:
        daemon.kill()
        daemon.communicate()


def _talk(path: Path, lines: list[str]) -> list[str]:
    """All that is answered to lines on one connection, until nothing more comes."""
    said = b""
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(PASSING)
        one.connect(str(path))
        try:
            one.sendall("".join(line + "\n" for line in lines).encode())
            one.shutdown(socket.SHUT_WR)
            while more := one.recv(1 << 16):
                said += more
        except OSError as e:
            said += f"hung up: {e}\n".encode()
    return said.decode(errors="replace").splitlines()


def main(base: Path, case: dict[str, Any]) -> dict[str, Any]:
    """Play the case."""
    place = Sandbox(base, case)
    before = place.seen()
    told = rpc(place) if "rpc" in case else command(place)
    time.sleep(0.05)
    after = place.seen()
    told["changed"] = sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )
    kept = [path for tree in ("runs", "here") for path in (base / tree).rglob("*") if path.is_file()]
    told["leaked"] = [
        str(path) for path in kept
        if not path.is_symlink() and path.stat().st_size < 1 << 26 and b"CANARY: nothing" in path.read_bytes()
    ]  # fmt: skip
    planted = {place.path(name) for name in case.get("files", {})}
    told["left"] = [str(path) for path in (base / "tmp").iterdir() if path not in planted]
    return told


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), json.loads(sys.argv[2]))))
