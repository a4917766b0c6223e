"""Two runs at a time, each with a network of its own: none takes away the other's."""

from __future__ import annotations

import sys

import pytest
from lab import Lab, root

SCRIPT = """
import sys, threading
import netdyno

def experiment(name, seconds):
    profile = {
        "name": name,
        "phases": {"warmup": "0s", "measure": f"{seconds}s", "drain": "1s"},
        "validity": {"lateness_p99": "60s", "offered": 0.001, "starved": 1.0},
        "groups": [{"name": "g", "target": "web", "devices": 2, "model": {"http": {"interval": "100ms"}}}],
    }
    return {"name": name, "legs": [{
        "name": "leg", "profile": profile,
        "topology": {
            "hosts": {"gen": {"role": "generator"}, "server": {}},
            "links": [{"a": {"host": "gen", "name": "e0", "addresses": ["10.9.0.1/24"]},
                       "b": {"host": "server", "name": "e0", "addresses": ["10.9.0.2/24"]}}],
        },
        "duts": {"web": {"driver": "nginx", "host": "server"}},
    }]}

def run(name, seconds):
    done = netdyno.run(experiment(name, seconds), runs=sys.argv[1])
    group = done.result.legs[0].repetitions[0].groups[0]
    print(name, group.measured.messages_delivered, dict(group.measured.failures), done.result.error, flush=True)

threads = [threading.Thread(target=run, args=one) for one in map(eval, sys.argv[2:])]
[one.start() for one in threads]
[one.join() for one in threads]
"""


def seen(text: str) -> dict[str, tuple[int, str]]:
    """By run, how many requests were answered, and what went wrong."""
    lines = [line.split(" ", 2) for line in text.splitlines()]
    return {name: (int(count), rest) for name, count, rest in lines}


@root
@pytest.mark.limit(200)
@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_that_ends_leaves_the_other_alone(lab: Lab, processes: int) -> None:
    script = lab.write("script.py", SCRIPT)
    folder = lab.base / "runs"
    both = ("('short', 1)", "('long', 6)")
    groups = [both] if processes == 1 else [(one,) for one in both]
    started = [lab.spawn(sys.executable, script, folder, *group) for group in groups]
    done = [lab.wait(one, 150.0) for one in started]
    text = "".join(one.out for one in done)
    assert all(one.code == 0 for one in done), [one.text for one in done]
    runs = seen(text)
    assert runs["short"][1] == runs["long"][1] == "{} None", text
    # 20 a second of two devices
    assert runs["long"][0] > 3 * runs["short"][0] > 0, text
