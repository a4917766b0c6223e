"""What a node of a Ray cluster runs: it starts an agent, and ends with it. Ray carries this class there.

It uses the standard library alone: no node needs netdyno. Once the agent serves, nothing of it is left in the
node's file system, and it ends when this process does, however that ends.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import deque
from pathlib import Path
from typing import Any

WITH_US = ("setpriv", "--pdeathsig", "TERM")
"""What is started so gets a signal when this process ends (util-linux)."""


class NodeAgent:
    """The agent of one host of a fleet."""

    def __init__(self) -> None:
        self._serves = threading.Event()
        self._words: deque[str] = deque(maxlen=3)

    def auth_mode(self) -> str:
        """How the cluster that this node is of tells who may give it work."""
        return os.environ.get("RAY_AUTH_MODE", "")

    def address(self) -> str:
        """Where the node is reached."""
        import ray  # type: ignore[import-not-found,unused-ignore]

        return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call,unused-ignore]

    def start(self, program: bytes, identity: dict[str, str], listen: str) -> dict[str, Any]:
        """Start the agent with these files of its identity; what it says when it serves.

        Raises `RuntimeError` with its last words where it does not come up.
        """
        folder = Path(tempfile.mkdtemp(prefix="nd-fleet-"))
        try:
            for name, text in identity.items():
                (folder / name).write_text(text)
                (folder / name).chmod(0o600)
            (folder / "netdynod").write_bytes(program)
            (folder / "netdynod").chmod(0o700)
            return self._started(folder, listen)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _started(self, folder: Path, listen: str) -> dict[str, Any]:
        command = [*WITH_US, f"{folder}/netdynod", "--socket", f"{folder}/core.sock", "--log-json"]
        child = subprocess.Popen(
            [*command, "--mtls", listen, "--identity", str(folder)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        follower = threading.Thread(target=self._follow, args=(child,), daemon=True)
        follower.start()
        assert child.stdout is not None
        line = child.stdout.readline()
        if line:
            self._serves.set()
        if not line or child.poll() is not None:
            child.kill()
            follower.join(5.0)
            raise RuntimeError(" | ".join(self._words) or "it ended without a word")
        told: dict[str, Any] = json.loads(line)
        return told

    def _follow(self, child: subprocess.Popen[str]) -> None:
        """Its log goes into this process's, which Ray keeps; what has served and ends, ends this process."""
        assert child.stderr is not None
        for line in child.stderr:
            self._words.append(line.strip())
            sys.stderr.write(line)
        child.wait()
        if self._serves.is_set():
            sys.stderr.flush()
            os._exit(0)
