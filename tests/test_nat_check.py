"""A NAT's configuration is judged before it runs: `netdyno validate` and `netdyno nat check` say the same."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from lab import ROOT, Lab


def test_a_nat_is_validated_as_it_would_run(lab: Lab, tmp_path: Path) -> None:
    nat = tmp_path / "cgn.yaml"
    nat.write_text((ROOT / "examples/nat/cgn.yaml").read_text())
    assert lab.run("validate", str(nat)).out.count("good") == 1
    made = yaml.safe_load(nat.read_text())
    nat.write_text(yaml.safe_dump(made | {"timeouts": {"icmp": "30s"}}))
    done = lab.run("validate", "--json", str(nat))
    assert done.code == 104
    (found,) = json.loads(done.out)
    assert [error["at"] for error in found["errors"]] == ["timeouts.icmp"]
    checked = lab.run("nat", "check", str(nat))
    assert (checked.code, checked.out) == (104, "")
    assert f"{nat}: timeouts.icmp" in checked.err
