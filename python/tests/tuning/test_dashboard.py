"""What the dashboard may apply and undo: studies of the store and what `netdyno tune apply` holds, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from netdyno.errors import Error
from netdyno.tuning import dashboard


@pytest.mark.parametrize(
    ("what", "body", "code"),
    [
        ("preview", {"run": "none"}, "ND-104-25"),
        ("preview", {"run": "../../etc"}, "ND-104-25"),
        ("preview", {"run": "/etc/passwd"}, "ND-104-25"),
        ("preview", {"run": "x", "file": "/etc/passwd"}, "ND-104-10"),
        ("apply", {"run": "x", "unproven": True}, "ND-104-10"),
        ("undo", {"process": 1}, "ND-104-11"),
        ("undo", {"process": "1"}, "ND-104-11"),
        ("undo", {"pid": 1}, "ND-104-10"),
        ("restore", {"force": True}, "ND-104-10"),
        ("params", {"where": "container:x"}, "ND-104-10"),
    ],
)
def test_what_cannot_be_applied_or_undone_is_refused(what: str, body: dict[str, Any], code: str) -> None:
    with pytest.raises(Error) as caught:
        getattr(dashboard, what)(body)
    assert caught.value.code == code


def test_parameters_have_their_value_here_and_what_files_say() -> None:
    (one,) = dashboard.params({"find": "net.core.somaxconn"})["params"]
    assert isinstance(one["value"], int) and one["about"] and "to" in one["range"]
