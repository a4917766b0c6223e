"""What studies of settings return: a comparison, a screening, a search that was proven."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from netdyno import quantities
from netdyno.api.tables import pandas_module, table
from netdyno.errors import Error
from netdyno.stats.comparison import Finding
from netdyno.stats.observation import Value
from netdyno.tuning.compare_run import ComparisonOutcome
from netdyno.tuning.prove import Proof
from netdyno.tuning.screen import Effect
from netdyno.tuning.screen_run import ScreeningOutcome
from netdyno.tuning.search_run import TuningSearchOutcome

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Comparison:
    """What is known of one setting beside another."""

    study: ComparisonOutcome

    @property
    def run(self) -> str:
        """Its run in the store."""
        return str(self.study.document["run"])

    @property
    def summary(self) -> str:
        """What came of it, in a sentence."""
        return self.study.comparison.summary

    @property
    def valid(self) -> bool:
        """Whether enough pairs count for anything to be shown, and both settings lost equal shares."""
        return not self.study.comparison.invalid

    @property
    def findings(self) -> Sequence[Finding]:
        """By metric: effect, interval, corrected p, minimum detectable effect, verdict."""
        return self.study.comparison.findings

    def verdict(self, metric: str) -> str:
        """`better`, `worse`, `no effect`, `not shown`, `too few pairs` or `invalid`."""
        return str(self.study.comparison.verdict(metric))

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each metric: means of both sides, change with its interval, p, verdict."""
        pd = pandas_module()
        rows = []
        for one in self.findings:
            low, high = one.effect.interval or (float("nan"), float("nan"))
            rows.append(
                {
                    "metric": one.metric.name, "unit": one.metric.unit, "a": one.effect.a, "b": one.effect.b,
                    "change": one.effect.change, "low": low, "high": high, "p": one.p_holm,
                    "detectable": one.detectable, "verdict": str(one.verdict),
                }
            )  # fmt: skip
        return pd.DataFrame(rows).set_index("metric")  # type: ignore[no-any-return]

    def pairs(self, metric: str) -> list[tuple[float, float]]:
        """What A and B had in each pair that counts."""
        for one in self.study.document["result"]["metrics"]:
            if one["metric"]["name"] == metric:
                return [(a, b) for a, b in one["pairs"]]
        there = ", ".join(one.metric.name for one in self.findings)
        raise Error("ND-104-52", f"{metric!r} was not compared", fix=f"There are: {there}")

    def __repr__(self) -> str:
        return f"<netdyno comparison {self.run}: {self.summary}>"

    def _repr_html_(self) -> str:
        heads = ("metric", self.study.a.name, self.study.b.name, "change", "interval", "verdict")

        def mean(one: Finding, value: float) -> str:
            return quantities.number(value, one.metric.unit)

        rows = [
            (
                one.metric.name, mean(one, one.effect.a), mean(one, one.effect.b),
                one.change_text(one.effect.change),
                " … ".join(one.change_text(end) for end in one.effect.interval or ()), str(one.verdict),
            )
            for one in self.findings
        ]  # fmt: skip
        return table(self.summary, heads, rows)


@dataclass(frozen=True)
class Screening:
    """Which parameters matter."""

    study: ScreeningOutcome

    @property
    def run(self) -> str:
        """Its run in the store."""
        return str(self.study.document["run"])

    @property
    def name(self) -> str:
        """Of the study, for `tune` to go on from."""
        return self.study.study.name

    @property
    def survivors(self) -> list[str]:
        """Parameters that matter to any metric."""
        return self.study.found.survivors()

    def effects(self, metric: str | None = None) -> Sequence[Effect]:
        """Of each parameter on a metric, the largest first; on the first, where none is named."""
        found = self.study.found
        name = next(iter(found.metrics)) if metric is None else metric
        if name not in found.metrics:
            fix = f"There are: {', '.join(found.metrics)}"
            raise Error("ND-104-52", f"{metric!r} was not looked at", fix=fix)
        return found.of(name)

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each metric and parameter: mean effect as a gain, sigma, p, whether it matters."""
        rows = [
            {
                "metric": one.metric, "parameter": one.name, "mu": one.mu, "mu_star": one.mu_star,
                "sigma": one.sigma, "p": one.p, "matters": one.matters, "better": one.better,
            }
            for one in self.study.found.effects
        ]  # fmt: skip
        return pandas_module().DataFrame(rows)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<netdyno screening {self.run}: {', '.join(self.survivors) or 'nothing'} matters>"


@dataclass(frozen=True)
class Tuning:
    """The setting that a search found, and what fresh pairs of trials say of it."""

    study: TuningSearchOutcome

    @property
    def run(self) -> str:
        """Its run in the store."""
        return str(self.study.document["run"])

    @property
    def name(self) -> str:
        """Of the study, for `netdyno tune apply`."""
        return self.study.study.name

    @property
    def summary(self) -> str:
        """What came of it, in a sentence."""
        return self.study.found.summary

    @property
    def valid(self) -> bool:
        """Whether enough pairs of the proof count for anything to be shown."""
        return not self.study.found.invalid

    @property
    def proven(self) -> bool:
        """Whether anything was proven better than the baseline."""
        return self.study.found.proven

    @property
    def proofs(self) -> Sequence[Proof]:
        """For each objective in which something looked better: setting, comparison with the baseline."""
        return self.study.found.proofs

    def proof(self, objective: str | None = None) -> Proof:
        """Of one objective; of the first, where none is named."""
        for one in self.proofs:
            if objective in (None, one.objective):
                return one
        there = ", ".join(one.objective for one in self.proofs) or "none looked better than the baseline"
        what = "nothing looked better" if objective is None else f"nothing looked better for {objective!r}"
        raise Error("ND-104-52", what, at=self.name, fix=f"There are: {there}")

    def setting(self, objective: str | None = None) -> Mapping[str, Value]:
        """The best setting for an objective, without what it does not need; proven or not."""
        return dict(self.proof(objective).setting)

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each setting that was tried: its parameters, metrics, whether it is feasible."""
        rows: list[dict[str, Any]] = [
            {**one.setting, **one.trial.observation.metrics, "feasible": one.feasible, "lost": one.lost}
            for one in self.study.found.tried
        ]
        return pandas_module().DataFrame(rows)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<netdyno tuning {self.run}: {self.summary}>"
