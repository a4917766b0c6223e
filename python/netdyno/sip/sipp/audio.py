"""Recordings that SIPp scenarios play."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

SHARED = Path("/usr/share/sip-tester")
"""Where the package has its recordings."""
CODECS = {"0": "pcmu", "8": "pcma"}
"""Codecs by payload type."""


def find(recording: str, scenario: str) -> Path | None:
    """The file, beside the scenario or among those of SIPp."""
    folder = Path(scenario).parent
    for path in (folder / recording, SHARED / recording, SHARED / Path(recording).name):
        if path.is_file():
            return path.absolute()
    return None


def media(recording: Path, offered: Iterable[str]) -> dict[str, Any]:
    """Audio of the model `sip` that plays a recording with the first codec of a session description."""
    codec = next((CODECS[one] for one in offered if one in CODECS), "pcmu")
    return {"codec": codec, "source": {"file": str(recording)}}
