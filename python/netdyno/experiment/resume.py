"""Trials of an earlier run of the same experiment, taken over in place of being run again."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict, deque
from typing import Any

from netdyno.core import secret
from netdyno.core.result import Repetition, Result
from netdyno.errors import Error
from netdyno.experiment.spec import Variant
from netdyno.system import environment

SAME = ("kernel", "memory_bytes", "hypervisor", "cpu")
"""What a machine must share with the earlier run's: trials of two machines make no run."""


def digest(variant: Variant, fleet: str | None = None) -> str:
    """Of all that a trial is: its leg, load and hosts, and the fleet that generates the load."""
    leg = variant.leg.model_dump(mode="json", exclude={"profile", "fleet"})
    what = {"name": variant.name, "leg": leg, "profile": secret.storable(variant.profile)}
    if fleet is not None:
        what["fleet"] = fleet
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]


class EarlierRun:
    """Valid trials of an earlier run, each used once."""

    def __init__(self, run: Result, here: dict[str, Any]) -> None:
        if run.kind != "run":
            what = f"{run.id} is a study, not a run"
            raise Error("ND-104-51", what, at="--resume", fix="Studies resume by the same command alone")
        other = [one for one in environment.differences(run.environment, here) if one.split(".")[0] in SAME]
        if other:
            what = f"{run.id} was run on another machine: {', '.join(other)}"
            raise Error("ND-104-51", what, at="--resume", fix="Run it again without --resume")
        self.id = run.id
        self._left: defaultdict[str, deque[Repetition]] = defaultdict(deque)
        for leg in run.legs:
            for one in leg.repetitions:
                # what was disturbed or ended in an error is measured again
                if one.digest and one.validity.valid and not any(dut.died for dut in one.dut.values()):
                    self._left[one.digest].append(one)

    def take(self, variant: Variant, fleet: str | None = None) -> Repetition | None:
        """The next trial of this variant, with load of this fleet, if one is left."""
        left = self._left.get(digest(variant, fleet))
        return left.popleft() if left else None
