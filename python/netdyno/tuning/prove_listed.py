"""Prove a short list of settings against the baseline, without a search before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from netdyno.errors import Error
from netdyno.experiment.measurer import SettingMeasurer
from netdyno.experiment.record import Record
from netdyno.stats.comparison import Verdict
from netdyno.stats.observation import Setting
from netdyno.stats.power import trial_scale
from netdyno.tuning import benches
from netdyno.tuning.gain import centre, gain, has_metrics, of_bench
from netdyno.tuning.prove import (
    Candidate,
    Limit,
    Proof,
    ProofPlan,
    measure,
    plan,
    prove,
    resume_or_plan,
)
from netdyno.tuning.search import BASELINE, Goal, SearchOutcome

SURE = (Verdict.NO_EFFECT, Verdict.WORSE)
"""Verdicts after which nothing is left to ask of a setting."""


@dataclass(frozen=True)
class ListedProof:
    """What became of each setting of a short list, what is proven first, the largest likely gain before."""

    names: tuple[str, ...]
    found: SearchOutcome
    """As a search without trials of its own, a proof for each name."""

    @property
    def proven(self) -> tuple[str, ...]:
        """Those that are proven better."""
        return tuple(n for n, p in zip(self.names, self.found.proofs, strict=True) if p.proven)

    @property
    def doubt(self) -> bool:
        """Whether some setting may be better or not, and none is proven to be."""
        return not self.proven and any(p.verdict not in SURE for p in self.found.proofs)


def _likely(proof: Proof) -> float:
    """Its gain if it is proven."""
    found = proof.finding if proof.proven else None
    return abs(found.likely) if found and found.likely is not None else 0.0


def prove_listed(
    bench: SettingMeasurer,
    settings: Mapping[str, Setting],
    expected: Mapping[str, float],
    objective: str,
    record: Record,
    *,
    limits: Sequence[Limit] = (),
    pairs: int | None = None,
    spare: int | None = None,
    seed: int = 1,
    level: float = 0.05,
    before: Callable[[ProofPlan], None] = lambda planned: None,
) -> ListedProof:
    """Measure all of them in turn with the baseline, in fresh blocks; `expected` is the gain of each.

    The level is the chance that any of them is falsely called better or worse.
    """
    of_bench(bench.metrics, [objective])
    baseline = [record.fair(bench, "baseline", i, {}, seed * 1_000_003 + i) for i in range(BASELINE)]
    valid = [t.observation for t in baseline if has_metrics(t.observation, objective)]
    if not valid:
        why = baseline[0].observation.why or f"it lacks {objective}"
        raise Error("ND-90-30", f"no trial of the baseline is valid: {why}", fix="Make the load work first")
    metrics = {n: m for n, m in bench.metrics.items() if all(has_metrics(o, n) for o in valid)}
    reference = {n: centre(m, [o.metrics[n] for o in valid]) for n, m in metrics.items()}
    spread = {
        n: trial_scale([gain(m, o.metrics[n], reference[n]) for o in valid]) for n, m in metrics.items()
    }
    names, arms = list(settings), [{}, *settings.values()]
    least = min((expected[name] for name in names), default=0.0)

    def make(own: float, wanted: int | None, again: int | None) -> ProofPlan:
        of_each = own / len(names)
        made = plan(
            metrics, {objective: least}, spread, len(valid), arms=len(arms), level=of_each, pairs=wanted,
            spare=spare if again is None else again,
        )  # fmt: skip
        return replace(made, level=own)

    planned = resume_or_plan(record, arms, level, pairs, make)
    before(planned)
    measured, rest = measure(bench, record, planned, arms, seed)
    candidates = [
        Candidate(objective, setting, benches.mechanism({}, setting), one)
        for setting, one in zip(arms[1:], measured[1:], strict=True)
    ]
    proofs = prove(metrics, measured[0], candidates, limits, planned.level, rest.again)
    if not any(p.verdict is Verdict.TOO_FEW for p in proofs):
        judged = {"number": planned.number, "spare": planned.spare}
        if judged not in record.noted("proof judged"):
            record.note("proof judged", **judged)
    ranked = sorted(zip(names, proofs, strict=True), key=lambda one: (not one[1].proven, -_likely(one[1])))
    found = SearchOutcome(
        Goal((objective,), tuple(limits)), metrics, reference, spread, (), (),
        tuple(proof for _, proof in ranked), "budget", tuple(baseline), planned,
    )  # fmt: skip
    return ListedProof(tuple(name for name, _ in ranked), found)
