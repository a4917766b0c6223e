"""Entry point: ready for Ctrl-C before the rest of the program is loaded."""

from __future__ import annotations

import os
import signal
import sys
from io import TextIOWrapper
from types import FrameType

from netdyno.errors import INTERRUPTED


def _leave(number: int, frame: FrameType | None) -> None:
    # nothing has been changed yet, so there is nothing to undo and nothing to say
    os._exit(INTERRUPTED)


def main() -> None:
    """Run the command line and end the process."""
    signal.signal(signal.SIGINT, _leave)
    from netdyno.cli import app

    for stream in (sys.stdout, sys.stderr):
        # a terminal that has no → shall not end a run
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(app.call())


if __name__ == "__main__":
    main()
