"""The simulation of large fleets: what it says follows from its costs, and the page says the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import fleet_scale
import pytest

ROOT = Path(__file__).parents[3]
COSTS = fleet_scale.read(ROOT / "benches" / "results" / "fleet-scale.json")


def test_ten_thousand_agents_keep_up_through_relays_and_not_without() -> None:
    through = fleet_scale.simulate(10_000, 250, 24, COSTS)
    assert (through.relays, through.keeps_up) == (40, True)
    assert through.controller_bytes == 40 * COSTS.relay_bytes
    assert not fleet_scale.simulate(2500, 250, 3, COSTS).keeps_up
    # no number of cores helps one process
    assert not fleet_scale.simulate(1000, 1000, 64, COSTS).keeps_up


def test_work_is_what_was_measured_times_what_is_told() -> None:
    found = fleet_scale.simulate(200, 250, 1, COSTS)
    assert found.controller_cpu == pytest.approx(200 * COSTS.agent_cpu, rel=0.02)
    assert found.delay_p50 == pytest.approx(200 * COSTS.agent_cpu, rel=0.1)
    through = fleet_scale.simulate(1000, 250, 5, COSTS)
    assert through.relay_cpu == pytest.approx(250 * COSTS.agent_cpu, rel=0.02)
    assert through.controller_cpu == pytest.approx(4 * COSTS.relay_cpu, rel=0.1)
    cheap = replace(COSTS, agent_cpu=COSTS.agent_cpu / 10)
    assert fleet_scale.simulate(1000, 1000, 1, cheap).keeps_up


def test_the_page_has_what_the_simulation_says() -> None:
    page = (ROOT / "docs" / "methodology" / "fleet.md").read_text()
    assert fleet_scale.table(COSTS, fleet_scale.FLEETS[:4]) in page
    other = fleet_scale.simulate(1000, 250, 3, COSTS, seed=50)
    assert other != fleet_scale.simulate(1000, 250, 3, COSTS) == fleet_scale.simulate(1000, 250, 3, COSTS)
