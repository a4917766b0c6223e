"""Run a profile through netdynod's JSON-RPC, with nothing but the standard library.

python3 examples/rpc.py profiles/stream-64b.json
"""

import json
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

NETDYNOD = Path(__file__).resolve().parent.parent / "target/release/netdynod"


class Rpc:
    """One connection: a request a line, an answer a line, notifications in between."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.lines = self.socket.makefile("r")
        self.number = 0

    def call(self, method: str, **params: object) -> object:
        """The answer to one request; notifications that come before it are shown."""
        self.number += 1
        request = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        self.socket.sendall(json.dumps(request).encode() + b"\n")
        while True:
            message = json.loads(self.lines.readline())
            if message.get("id") == self.number:
                break
            show(message)
        if "error" in message:
            sys.exit(f"{method}: {json.dumps(message['error'], indent=2)}")
        return message["result"]


def show(message: dict) -> None:
    """One line for each sample."""
    if message.get("method") != "stats.sample":
        return
    sample = message["params"].get("sample", message["params"])
    for name, group in sample["groups"].items():
        sent, back = group["counts"]["messages_sent"], group["counts"]["messages_delivered"]
        print(f"{sample['t']:5.1f} s {sample['phase']:8} {name}: {sent} sent, {back} delivered")


def main(profile: str) -> None:
    """Start a daemon, run the profile, end the daemon."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/core.sock"
        daemon = subprocess.Popen([NETDYNOD, "--socket", path, "--log-level", "warn"], stdout=subprocess.PIPE)
        assert daemon.stdout
        daemon.stdout.readline()  # {"ready": …}
        try:
            rpc = Rpc(path)
            document = json.loads(Path(profile).read_text())
            for error in rpc.call("profile.validate", profile=document)["errors"]:
                sys.exit(f"{error['code']} at {error['at']}: {error['what']}. {error['fix']}")
            rpc.call("control.acquire")
            rpc.call("run.load", profile=document)
            rpc.call("stats.subscribe")
            rpc.call("run.start")
            # asking for the status renews the lease; without it the load stops after three seconds
            while rpc.call("run.status")["state"] not in ("done", "failed"):
                message = json.loads(rpc.lines.readline())
                show(message)
            result = rpc.call("run.result")
            print("valid:", result["validity"]["valid"])
            for group in result["groups"]:
                print(group["name"], "loss:", group["loss"])
        finally:
            daemon.terminate()
            daemon.wait()


if __name__ == "__main__":
    main(sys.argv[1])
