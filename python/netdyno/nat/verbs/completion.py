"""What the shell completes for `netdyno nat`."""

from __future__ import annotations

from collections.abc import Iterator


def running_nat(incomplete: str) -> Iterator[str]:
    """NATs of this machine whose names begin so."""
    from netdyno.nat import running

    return (name for name in running.candidates() if name.startswith(incomplete))
