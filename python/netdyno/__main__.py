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


def main() -> None:
    """Run the command line and end the process."""
    signal.signal(signal.SIGINT, _leave)
    from netdyno.cli import app
    from netdyno.interrupt import early

    for stream in (sys.stdout, sys.stderr):
        # a terminal that has no → shall not end a run
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    signal.signal(signal.SIGINT, early)
    sys.exit(app.call())


if __name__ == "__main__":
    main()
