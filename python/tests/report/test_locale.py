from __future__ import annotations

import re
from pathlib import Path

import pytest

import netdyno.report
from netdyno.report.locale import LANGUAGES, catalogue, parse_po
from netdyno.report.text import Data, M, html
from netdyno.systems import SYSTEMS

REPORT = Path(netdyno.report.__file__).parent
SYSTEM = {one.name: REPORT.parent / one.name for one in SYSTEMS}


def used(root: Path) -> set[str]:
    """Every message that Python, the templates and the scripts of a part ask for."""
    extract = pytest.importorskip("babel.messages.extract").extract
    found: set[str] = set()
    for path in root.rglob("*.py"):
        with path.open("rb") as file:
            found |= {
                message for _, message, _, _ in extract("python", file, keywords={"M": None, "N_": None})
            }
    for path in (root / "template").glob("*.j2"):
        found |= set(re.findall(r'\bM\(\s*"([^"]*)"', path.read_text(encoding="utf-8")))
    for path in (root / "assets").glob("*.js"):
        found |= set(re.findall(r'\{ t: "([^"]*)"', path.read_text(encoding="utf-8")))
    return found


def held(root: Path, language: str) -> set[str]:
    return set(parse_po((root / "locale" / f"{language}.po").read_text(encoding="utf-8")))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.slow
def test_catalogues_hold_exactly_what_is_used(language: str) -> None:
    platform = held(REPORT, language)
    assert used(REPORT) - platform == set(), "missing: add them to the catalogue"
    assert platform - used(REPORT) == set(), "no longer used: take them out"
    for name, root in SYSTEM.items():
        own = held(root, language)
        assert used(root) - own - platform == set(), f"missing: add them to the catalogue of {name}"
        assert own - used(root) == set(), f"no longer used by {name}: take them out"
        assert own & platform == set(), f"{name} has them from the report: take them out"
    assert set(catalogue(language)) == platform.union(*(held(root, language) for root in SYSTEM.values()))


@pytest.mark.parametrize("language", LANGUAGES)
def test_translations_keep_their_places(language: str) -> None:
    places = re.compile(r"\{\w+\}")
    for message, translation in catalogue(language).items():
        assert sorted(places.findall(message)) == sorted(places.findall(translation)), message


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("root", [REPORT, *SYSTEM.values()], ids=lambda root: root.name)
def test_reader_agrees_with_babel(root: Path, language: str) -> None:
    read_po = pytest.importorskip("babel.messages.pofile").read_po
    path = root / "locale" / f"{language}.po"
    with path.open("rb") as file:
        theirs = {m.id: m.string for m in read_po(file) if m.id and m.string}
    assert parse_po(path.read_text(encoding="utf-8")) == theirs


def test_reader_knows_continued_lines_escapes_and_fuzzy() -> None:
    text = (
        'msgid ""\nmsgstr "Language: ko\\n"\n\n'
        '#: x\nmsgid ""\n"one "\n"\\"two\\""\nmsgstr "하나"\n\n'
        '#, fuzzy\nmsgid "guess"\nmsgstr "짐작"\n\nmsgid "none"\nmsgstr ""\n\nmsgid "last"\nmsgstr "끝"\n'
    )
    assert parse_po(text) == {'one "two"': "하나", "last": "끝"}


def test_messages_nest_and_isolate_what_names_hold() -> None:
    inner = M("{n} of {total} thresholds pass.", n="1", total="2")
    assert (
        M("The measurement is valid. {passing}", passing=inner)
        .plain(catalogue("ko"))
        .startswith("측정은 유효합니다.")
    )
    assert M("{group}: loss", group=Data("<b>\u202e")).plain() == "\u2068<b>\\u202e\u2069: loss"
    assert "<b>" not in html(M("{group}: loss", group=Data("<b>")))
    assert html(Data("<i>")) == '<bdi translate="no">&lt;i&gt;</bdi>'
