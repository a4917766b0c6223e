from pathlib import Path

import pytest

from netdyno import errors
from netdyno.errors import Error


def test_reference_is_current() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "reference" / "errors.md"
    assert page.read_text() == errors.reference(), "run python -m netdyno.errors > docs/reference/errors.md"


def test_every_code_is_of_a_known_exit() -> None:
    assert {int(code.split("-")[1]) for code in errors.CODES} <= errors.EXITS.keys()


def test_every_code_used_is_in_the_table() -> None:
    import re

    package = Path(errors.__file__).parent
    used = {c for f in package.rglob("*.py") for c in re.findall(r"ND-\d+-\d\d", f.read_text())}
    assert used <= errors.CODES.keys()


def test_an_error_says_what_where_and_what_to_do() -> None:
    e = Error("ND-104-20", "it is gone", at="a.json", fix="Write it")
    assert str(e) == "ND-104-20: at a.json: it is gone. Write it"
    assert e.exit_code == 104
    assert Error.of(e.as_dict()).as_dict() == e.as_dict()


@pytest.mark.parametrize(("code", "exit_code"), [("ND-90-20", 90), ("ND-105-20", 105)])
def test_exit_code_is_the_family(code: str, exit_code: int) -> None:
    assert Error(code, "x").exit_code == exit_code
