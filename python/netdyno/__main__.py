"""Entry point: ready for Ctrl-C before the rest of the program is loaded."""

from __future__ import annotations

import io
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType


def _leave(number: int, frame: FrameType | None) -> None:
    # nothing has been changed yet, so there is nothing to undo and nothing to say;
    # the number is errors.INTERRUPTED, which is not loaded yet either
    os._exit(105)


def _streams() -> None:
    """Standard streams that take whatever is printed; those that were closed take it to nowhere."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # left free, a file that is written to would be opened as standard output
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # a terminal that has no → shall not end a run
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def main() -> None:
    """Run the command line and end the process."""
    signal.signal(signal.SIGINT, _leave)
    try:
        _streams()
        from netdyno.cli import app
        from netdyno.system.interrupt import early, unraised
    except (OSError, ImportError, MemoryError) as e:
        # errors.ENVIRONMENT, and its words: too little is there to load them
        os.write(2, f"ND-92-35: netdyno cannot be loaded: {e}\n".encode(errors="replace"))
        os._exit(92)
    sys.unraisablehook = unraised
    signal.signal(signal.SIGINT, early)
    code = app.call()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


if __name__ == "__main__":
    main()
