"""`docs/reference/workloads.md`: the workloads of benches, with what `--set` sets of each."""

from __future__ import annotations

from netdyno.cli import describe
from netdyno.lab.workload import WORKLOADS

PAGE = "docs/reference/workloads.md"
INTRO = (
    "What loads a service in `netdyno tune compare`, `calibrate`, `screen` and `search` "
    "([how](../howto/tune.md)), in `netdyno switch compare` ([how](../howto/switch.md)) "
    "and `netdyno chain run` ([how](../howto/chain.md)). "
    "Each option is set with `--set NAME=VALUE`, or below `options` in a file. "
    "`netdyno describe` lists them too."
)


def page(note: str) -> str:
    """The page."""
    lines = ["# Workloads", "", note, "", INTRO, ""]
    for name, kind in WORKLOADS.items():
        metrics = ", ".join(f"`{one}`" for one in getattr(kind, "metrics", {})) or "what `--metric` defines"
        lines += [f"## `{name}`", "", f"{kind.about[0].upper()}{kind.about[1:]}. Metrics: {metrics}.", ""]
        lines += ["| option | default | what |", "|---|---|---|"]
        for option, one in describe.options(kind.Options).items():
            default = describe.default_text(one["default"])
            meaning = " ".join(str(one["meaning"]).split()).replace("|", "\\|")
            lines.append(f"| `{option}` | {f'`{default}`' if default != '–' else '–'} | {meaning} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"
