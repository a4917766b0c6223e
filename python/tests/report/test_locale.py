from __future__ import annotations

import re
from pathlib import Path

import pytest

import netdyno.report
from netdyno.report.locale import LANGUAGES, catalogue, parse_po
from netdyno.report.text import Data, M, html

ROOT = Path(netdyno.report.__file__).parent


def used() -> set[str]:
    """Every message that Python, the templates and the scripts ask for."""
    extract = pytest.importorskip("babel.messages.extract").extract
    found: set[str] = set()
    for path in ROOT.rglob("*.py"):
        with path.open("rb") as file:
            found |= {
                message for _, message, _, _ in extract("python", file, keywords={"M": None, "N_": None})
            }
    for path in (ROOT / "template").glob("*.j2"):
        found |= set(re.findall(r'\bM\(\s*"([^"]*)"', path.read_text(encoding="utf-8")))
    for path in (ROOT / "assets").glob("*.js"):
        found |= set(re.findall(r'\{ t: "([^"]*)"', path.read_text(encoding="utf-8")))
    return found


@pytest.mark.parametrize("language", LANGUAGES)
def test_catalogues_hold_exactly_what_is_used(language: str) -> None:
    have = set(catalogue(language))
    assert used() - have == set(), "missing: add them to the catalogue"
    assert have - used() == set(), "no longer used: take them out"


@pytest.mark.parametrize("language", LANGUAGES)
def test_translations_keep_their_places(language: str) -> None:
    places = re.compile(r"\{\w+\}")
    for message, translation in catalogue(language).items():
        assert sorted(places.findall(message)) == sorted(places.findall(translation)), message


@pytest.mark.parametrize("language", LANGUAGES)
def test_reader_agrees_with_babel(language: str) -> None:
    read_po = pytest.importorskip("babel.messages.pofile").read_po
    with (ROOT / "locale" / f"{language}.po").open("rb") as file:
        theirs = {m.id: m.string for m in read_po(file) if m.id and m.string}
    assert parse_po((ROOT / "locale" / f"{language}.po").read_text(encoding="utf-8")) == theirs


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
