"""What a killed run has left, put back before a script changes anything."""

from __future__ import annotations

import warnings

from netdyno.system import journal


def put_back() -> None:
    """Undo what dead processes left; what cannot be put back is a warning."""
    report = journal.restore()
    said = [
        *report.failed,
        *(f"{path}: {what}" for path, what in report.damaged.items()),
        *report.left,
        *report.gone,
    ]
    for line in said:
        warnings.warn(f"ND-92-31: not put back after an earlier run: {line}", stacklevel=3)
