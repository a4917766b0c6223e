"""Agents that answer what is not valid: their host is lost and named, and the others' part is kept."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import Done, Lab
from liar import Liar, Message


class TwoHosts:
    """A fleet of two agents of this machine, of which `evil` may lie; it loads a server of ours."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.name = f"liar{lab.base.name[-12:].replace('.', '-')}"
        hosts = "".join(f"- {{name: {host}, cores: [0]}}\n" for host in ("good", "evil"))
        self.file = lab.write("hosts.yaml", f"format: netdyno-fleet/1\nname: {self.name}\nhosts:\n{hosts}")
        done = lab.run("fleet", "up", self.file)
        assert done.code == 0, done.text
        state = json.loads((lab.state / "fleet" / f"{self.name}.json").read_text())
        (evil,) = (one for one in state["agents"] if one["host"]["name"] == "evil")
        self.liar = Liar(Path(evil["socket"]))

    def run(self, *more: str) -> Done:
        """A short load on our own server."""
        return self.lab.run(
            "run", "ping://127.0.0.1", "--rate", "20/s", "--devices", "4", "--duration", "1s",
            "--fleet", self.name, "-q", *more,
        )  # fmt: skip


@pytest.fixture
def two(lab: Lab) -> Iterator[TwoHosts]:
    one = TwoHosts(lab)
    yield one
    one.liar.close()
    assert lab.run("fleet", "down", one.name).code == 0


def answered(method: str, result: Any) -> Any:
    """Answers this to a method."""

    def lie(asked: str, message: Message) -> Message:
        return message | {"result": result} if asked == method else message

    return lie


def failing(method: str, error: Any) -> Any:
    """Fails a method with this."""

    def lie(asked: str, message: Message) -> Message:
        return {"jsonrpc": "2.0", "id": message["id"], "error": error} if asked == method else message

    return lie


def changed(method: str, **more: Any) -> Any:
    """Changes some keys of a result."""

    def lie(asked: str, message: Message) -> Message:
        return message | {"result": message["result"] | more} if asked == method else message

    return lie


# the last one's agent has begun, and stops with its lease
BEFORE = {
    "describe": answered("core.describe", {}),
    "load": answered("run.load", None),
    "error": failing("run.start", {"code": "abc", "message": 1}),
}


def test_who_lies_before_the_load_is_named(two: TwoHosts) -> None:
    for name, lie in BEFORE.items():
        two.liar.lie = lie
        done = two.run()
        assert done.code == 91, (name, done.text)
        assert "the host evil was lost" in done.err, (name, done.text)
        assert "Traceback" not in done.err, (name, done.text)


def second_sample(asked: str, message: Message) -> Message:
    """Not valid from the second second on."""
    if asked == "stats.sample" and message["params"]["t"] > 1.5:
        return message | {"params": message["params"] | {"t": "x"}}
    return message


def negative(asked: str, message: Message) -> Message:
    """Counts below zero."""
    if asked == "run.result":
        for group in message["result"]["groups"]:
            group["measured"]["messages_sent"] = -5_000_000
    return message


AFTER = {
    "nothing": changed("run.result", groups=[]),
    "empty": answered("run.result", {}),
    "started": changed("run.result", started="yesterday"),
    "nan": changed("run.result", phases={"measure": math.nan}),
    "negative": negative,
    "sample": second_sample,
}


def test_who_lies_about_the_load_is_named_and_the_others_part_is_kept(two: TwoHosts) -> None:
    for name, lie in AFTER.items():
        two.liar.lie = lie
        done = two.run()
        assert done.code == 91, (name, done.text)
        assert "the host evil was lost" in done.err, (name, done.text)
        assert "Traceback" not in done.err, (name, done.text)
        (group,) = done.trial.groups
        assert (group.devices, group.total.messages_delivered > 0) == (2, True), (name, done.text)
        assert [one.name for one in done.trial.hosts if one.lost] == ["evil"], (name, done.text)
    # the agent of the last one ends its run with its lease of 3 s; then the fleet is as it was
    time.sleep(5)
    two.liar.lie = lambda _, message: message
    done = two.run()
    assert (done.code, done.trial.groups[0].devices) == (0, 4), done.text


def test_who_lies_may_be_done_without(two: TwoHosts) -> None:
    two.liar.lie = AFTER["nothing"]
    done = two.run("--tolerate", "1")
    assert done.code == 0, done.text
    assert [one.name for one in done.trial.hosts if one.lost] == ["evil"]
    assert done.trial.groups[0].devices == 2
