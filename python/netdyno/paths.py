"""Where netdyno keeps things. One place, so that tests and users can move them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from netdyno import files
from netdyno.errors import Error


def state() -> Path:
    """Journal and store: `NETDYNO_STATE`, /var/lib/netdyno for root, else the user's XDG state.

    What root reads there it does: it is refused where it is another user's.
    """
    return files.trusted_folder(_state())


def _state() -> Path:
    chosen = os.environ.get("NETDYNO_STATE")
    if chosen:
        return Path(chosen)
    if os.geteuid() == 0:
        return Path("/var/lib/netdyno")
    if base := os.environ.get("XDG_STATE_HOME"):
        return Path(base) / "netdyno"
    try:
        return Path.home() / ".local" / "state" / "netdyno"
    except RuntimeError as e:
        what = "there is no home folder to keep the journal and the store in"
        raise Error("ND-92-30", what, fix="Set HOME, or NETDYNO_STATE to a folder") from e


def runs() -> Path:
    """Where run folders go: `NETDYNO_RUNS`, else `runs` here."""
    return Path(os.environ.get("NETDYNO_RUNS") or "runs")


def runtime() -> Path:
    """Sockets of daemons: short paths, since a Unix socket's path holds 107 bytes.

    Where it is below /tmp anybody may have made it before: it is refused where it is not ours.
    """
    base = os.environ.get("XDG_RUNTIME_DIR") if os.geteuid() else "/run"
    if base and os.access(base, os.W_OK):
        return files.trusted_folder(Path(base) / "netdyno")
    return files.trusted_folder(Path(tempfile.gettempdir()) / f"netdyno-{os.geteuid()}")


def with_folder(file: Path) -> Path:
    """The same path, its folder made; the folder that we share with nobody is that."""
    if file.parent == runtime():
        files.own_folder(file.parent)
    else:
        files.make_folder(file.parent, private=True)
    return file


def source() -> Path | None:
    """The root of the source tree this package runs from, if it does."""
    root = Path(__file__).resolve().parent.parent.parent
    return root if (root / "Cargo.toml").is_file() else None


def data(kind: str) -> Path:
    """The folder of `profiles` or `experiments`: links in a source tree, and files where it is installed."""
    return Path(__file__).resolve().parent / "data" / kind
