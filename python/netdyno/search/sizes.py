"""Frame sizes that standards ask for, and the mean size of what a profile sends; bytes with FCS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netdyno import units
from netdyno.errors import Error

RFC2544 = (64, 128, 256, 512, 1024, 1280, 1518)
"""RFC 2544 §9.1, Ethernet."""
IPV6 = (84, 128, 256, 512, 768, 1024, 1280, 1518)
"""RFC 8219 §5.1. 84 bytes are the smallest frame of IPv6 with the payload that IPv4 has room for in 64."""
JUMBO = (1522, 2048, 4096, 8192, 9216)
"""RFC 5180 §5.1.1, where the media take them."""
NAMED: Mapping[str, tuple[int, ...]] = {"rfc2544": RFC2544, "ipv6": IPV6, "jumbo": JUMBO}
IMIX = ((64, 7), (594, 4), (1518, 1))
"""What `{imix: {}}` of a profile sends: sizes and weights."""
GENOME = dict(
    zip("abcdefghijz", (64, 128, 256, 512, 1024, 1280, 1518, 2112, 9000, 16_000, 1518), strict=True)
)
"""Letters of an IMIX genome (RFC 6985 §3); z is the MTU's size, here that of Ethernet."""
LETTERS = 1024
"""That a genome has at most, for the core."""
LEAST, MOST = 64, 16_000
WIRE = 20
"""Bytes on the wire besides: preamble and gap between frames."""
HEADERS = {4: 14 + 20 + 8 + 4, 6: 14 + 40 + 8 + 4}
"""Ethernet with FCS, IP and UDP around the payload of a stream, by version of IP."""

Size = Mapping[str, Any]
"""As `frame.size` of a profile has it: `{"fixed": "64B"}`, `{"imix": {}}`."""


def read(text: str) -> list[tuple[str, Size]]:
    """Sizes as they stand behind --sizes: `64,512`, `rfc2544`, `ipv6,jumbo`, `imix`, `genome:aaadg`."""
    if not isinstance(text, str):
        fix = 'Write them like "64,512"'
        raise Error("ND-104-04", f"{text!r} is no list of frame sizes", at="--sizes", fix=fix)
    found: dict[str, Size] = {}
    for word in (part.strip() for part in text.split(",")):
        if word in NAMED:
            found |= {f"{size}B": {"fixed": f"{size}B"} for size in NAMED[word]}
        elif word == "imix":
            found["imix"] = {"imix": {}}
        elif word.startswith("genome:") and _is_genome(word[7:]):
            found[f"genome-{word[7:]}"] = {"genome": word[7:]}
        elif word.removesuffix("B").isdigit() and LEAST <= int(word.removesuffix("B")) <= MOST:
            size = int(word.removesuffix("B"))
            found[f"{size}B"] = {"fixed": f"{size}B"}
        else:
            shown = word if len(word) <= 80 else f"{word[:80]}…"
            genome = f"genome:LETTERS, 1 to {LETTERS:,} of {''.join(GENOME)}"
            fix = f"Use bytes from {LEAST} to {MOST:,} with FCS, {', '.join(NAMED)}, imix or {genome}"
            raise Error("ND-104-04", f"{shown!r} is no frame size", at="--sizes", fix=f"{fix}, with commas")
    return list(found.items())


def _is_genome(letters: str) -> bool:
    return 0 < len(letters) <= LETTERS and set(letters) <= GENOME.keys()


def mean(size: Size) -> float | None:
    """The mean size of frames, with FCS; none where it cannot be said here."""
    match size:
        case {"fixed": one}:
            return units.bound(one)
        case {"imix": _}:
            return _weighted(IMIX)
        case {"mix": [*shares]}:
            return _weighted([(units.bound(one["size"]), float(one["weight"])) for one in shares])
        case {"genome": str(letters)} if letters and set(letters) <= GENOME.keys():
            return sum(GENOME[letter] for letter in letters) / len(letters)
        case {"random": {"from": low, "to": high}}:
            return (units.bound(low) + units.bound(high)) / 2
    return None


def largest(size: Size) -> float | None:
    """The largest of the frames, with FCS; none where it cannot be said here."""
    match size:
        case {"fixed": one}:
            return units.bound(one)
        case {"imix": _}:
            return float(max(one for one, _ in IMIX))
        case {"mix": [*shares]}:
            return max(units.bound(one["size"]) for one in shares)
        case {"genome": str(letters)} if letters and set(letters) <= GENOME.keys():
            return float(max(GENOME[letter] for letter in letters))
        case {"random": {"from": _, "to": high}}:
            return units.bound(high)
    return None


def _weighted(shares: Any) -> float:
    return float(sum(size * weight for size, weight in shares) / sum(weight for _, weight in shares))
