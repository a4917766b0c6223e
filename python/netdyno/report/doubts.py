"""Warnings of a run under way: what would make it invalid if it stayed so."""

from __future__ import annotations

from netdyno.report.text import M, Msg


def starved(core: str, share: float) -> Msg:
    """A worker waits for its CPU."""
    return M("{core} waited for its CPU {share} of the time", core=core, share=f"{share:.0%}")


def short(group: str, what: str, share: float) -> Msg:
    """Less is offered than intended."""
    if what == "flows":
        return M("{group}: only {share} of the intended flows offered", group=group, share=f"{share:.1%}")
    return M("{group}: only {share} of the intended messages offered", group=group, share=f"{share:.1%}")


def late(group: str, share: float, limit: str) -> Msg:
    """Messages are sent late."""
    return M("{group}: {share} went out over {limit} late", group=group, share=f"{share:.1%}", limit=limit)
