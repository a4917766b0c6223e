"""What a study of settings proposes: the setting that was proven better, or looked it; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from netdyno.stats.observation import Setting

KINDS = {"search": "search", "compare": "comparison"}
"""Studies that end with a setting to use."""
CONTRADICTED = "contradicted"
"""Of a mechanism, as `comparison.Mechanism` has it."""
SIMULATED = "sim"
"""The bench that is a model, whose winners say nothing of a machine."""


@dataclass(frozen=True)
class Winner:
    """A setting and what it is best for."""

    metric: str
    """Of a comparison that was proven in several, all of them."""
    setting: Setting
    proven: bool
    why: str
    """Why it is not proven; empty where it is."""
    pairs: int
    """Of trials beside the baseline that count."""
    simulated: bool
    """It says nothing of a machine."""
    refuted: bool = False
    """It was shown to be worse, or to break a bound: more pairs would not mend it."""
    contradicted: bool = False
    """It is proven, and yet none of the counters moved by which it would show."""

    @property
    def objection(self) -> str:
        """Why it is not to be applied; empty where nothing speaks against it."""
        return self.why or ("it was measured on a simulation" if self.simulated else "")


def winners(study: Mapping[str, Any]) -> list[Winner]:
    """Of a search one for each objective; of a comparison its second setting; of anything else none."""
    found = study["result"]
    simulated = study.get("bench") == SIMULATED
    if study["kind"] == "search":
        return [_proof(proof, simulated) for proof in found["proofs"]]
    if study["kind"] == "compare":
        return [_compared(found, simulated)] if found["b"]["setting"] else []
    return []


def never_hit(a: Iterable[float]) -> bool:
    """Whether no counter of the mechanism ever moved in the baseline, from their means in it.

    Without counters nobody knows.
    """
    moved = list(a)
    return bool(moved) and not any(moved)


def _proof(proof: Mapping[str, Any], simulated: bool) -> Winner:
    why = "" if proof["proven"] else _reason(proof)
    pairs = int(proof["comparison"]["pairs"])
    contradicted = proof["comparison"].get("mechanism") == CONTRADICTED
    refuted = bool(why) and not proof["broken"] and proof.get("verdict") == "worse"
    return Winner(
        str(proof["objective"]), dict(proof["setting"]), not why, why, pairs, simulated, refuted, contradicted
    )


def _reason(proof: Mapping[str, Any]) -> str:
    failed = proof.get("failed") or [0, 0]
    if failed[0] > failed[1]:
        return f"{failed[0]} of its trials failed, {failed[1]} of the baseline's"
    if proof["broken"]:
        return f"it exceeds {', '.join(proof['broken'])}"
    return str(proof.get("shortage") or _WORDS.get(proof["verdict"], proof["verdict"]))


_WORDS = {
    "invalid": "the settings lost unequal shares of their trials",
    "no effect": "measured again it makes no difference that matters",
    "worse": "measured again it is worse",
    "not shown": "no difference was shown",
    "too few pairs": "too few pairs of trials count",
}


def _compared(found: Mapping[str, Any], simulated: bool) -> Winner:
    verdicts = {one["metric"]["name"]: one["verdict"] for one in found["metrics"]}
    better = [name for name, verdict in verdicts.items() if verdict == "better"]
    worse = [name for name, verdict in verdicts.items() if verdict == "worse"]
    why = ""
    broken = [one for one in found.get("slo") or () if one["b"]]
    if broken:
        why = f"it breaks {broken[0]['slo']} in {broken[0]['b']} of {broken[0]['trials']} trials"
    elif worse:
        why = f"it is worse in {', '.join(worse)}"
    elif not better:
        seen = set(verdicts.values())
        why = next((_WORDS[one] for one in _WORDS if one in seen), "nothing was shown")
    return Winner(
        ", ".join(better), dict(found["b"]["setting"]), not why, why, int(found["pairs"]), simulated,
        bool(broken or worse), found.get("mechanism") == CONTRADICTED,
    )  # fmt: skip
