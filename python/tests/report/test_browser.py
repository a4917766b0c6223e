"""The page in a real Chromium: from a file and from a server, by mouse and by keyboard, in both languages."""

from __future__ import annotations

import functools
import http.server
import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netdyno.core.result import Result
from netdyno.escape import visible
from netdyno.report.locale import catalogue
from netdyno.report.render import render
from netdyno.report.series_csv import series_csv
from tests.report.conftest import Browser

#: Letters that stand in every language: units, and what has only one name.
EVERYWHERE = re.compile(
    r"(?<![A-Za-z])(?:netdyno tune \w+|sysctl\.conf|I?PDV|RFC|[kMG]?bit/s|[kMG]?B|ms|µs|ns|min|s|h|k|M|CPU|DUT|Holm|Welch|PNG|Markdown|netdyno|pps|pp)(?![A-Za-z])"
)
#: Text nodes and spoken attributes that the page itself says, without names and numbers out of the result.
SPOKEN = """
const found = [];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const at = walk.currentNode.parentElement;
  if (at.closest('[translate=no], script, style, noscript')) continue;
  const text = walk.currentNode.data.trim();
  if (text) found.push(text);
}
for (const name of ['aria-label', 'placeholder', 'title'])
  for (const at of document.querySelectorAll(`[${name}]`)) found.push(at.getAttribute(name));
return found.map((text) => text.replace(/\\u2068.*?\\u2069/g, ''));
"""

DRAWN = """
[...document.querySelectorAll('.chart .plot')].every((plot) => plot.hasAttribute('aria-label'))
&& [...document.querySelectorAll('.trial[data-filled] .flows')].every((place) => place.querySelector('table'))
"""
"""Every chart that there is has been drawn, every list of devices made."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, page: str) -> Path:
    folder = tmp_path_factory.mktemp("report")
    (folder / "report.html").write_text(page, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=folder)
    ) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_address[1]}/report.html"
        httpd.shutdown()


@pytest.fixture(params=["file", "http"])
def address(request: pytest.FixtureRequest, folder: Path, server: str) -> str:
    return (folder / "report.html").as_uri() if request.param == "file" else server


def language(browser: Browser, name: str) -> None:
    browser.js("document.querySelector(`[data-language=${arguments[0]}]`).click()", name)
    browser.wait(f"document.documentElement.lang === '{name}'")


def settled(browser: Browser) -> None:
    """Let the page lay out what is drawn, and do what it does then."""
    browser.driver.set_script_timeout(60)
    browser.driver.execute_async_script(
        "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)));"
    )


def speaks_both(browser: Browser, names: str = "") -> set[str]:
    """All that the page says, it says in English, in Korean, and in English again, but for these names. What keys
    its texts have."""
    keys = set(browser.js("return [...document.querySelectorAll('[data-t]')].map((e) => e.dataset.t)"))
    assert keys <= set(catalogue("ko"))
    english = browser.js(SPOKEN)
    assert not [t for t in english if re.search("[가-힣]", t)]
    # all of it at once: who listens to the choice of a language is done before it can be asked for
    language(browser, "ko")
    spoken = browser.js(SPOKEN)
    assert len(spoken) == len(english)
    ours = (re.sub(names, "", EVERYWHERE.sub("", t)) for t in spoken if not t.startswith("{"))
    assert [t for t in ours if re.search("[A-Za-z]{2,}", t)] == []
    language(browser, "en")
    assert browser.js(SPOKEN) == english
    return keys


def test_opens_without_complaint_and_asks_for_nothing(browser: Browser, address: str) -> None:
    browser.open(address)
    for i in browser.js("return [...document.querySelectorAll('.choice input')].map((_, i) => i)"):
        browser.js("document.querySelectorAll('.choice input')[arguments[0]].click()", i)
    language(browser, "ko")
    language(browser, "en")
    browser.wait(DRAWN)
    settled(browser)
    assert browser.complaints() == []
    asked = [u for u in browser.requests() if not u.startswith(("data:", "blob:"))]
    assert asked == [address]
    assert browser.js("return performance.getEntriesByType('resource').map((e) => e.name)") == []


def test_policy_stops_what_does_not_belong(browser: Browser, address: str) -> None:
    browser.open(address)
    browser.js(
        "const s = document.createElement('script'); s.textContent = 'window.pwned = 1'; document.body.append(s);"
        "const i = new Image(); i.src = 'http://127.0.0.1:9/x.png'; document.body.append(i);"
    )
    assert browser.js("return window.pwned") is None
    assert any("Content Security Policy" in m for m in browser.complaints())


def test_every_text_changes_with_the_language(browser: Browser, folder: Path) -> None:
    browser.open((folder / "report.html").as_uri() + "?lang=en")
    for details in ("details", "details details"):
        browser.js(f"document.querySelectorAll('{details}').forEach((d) => d.open = true)")
    # what is opened is filled after it is opened
    browser.wait("[...document.querySelectorAll('.chart details')].every((d) => d.querySelector('table'))")
    assert browser.js("return document.documentElement.lang") == "en"
    assert len(speaks_both(browser)) > 100
    language(browser, "ko")
    assert browser.js("return document.title").endswith("보고서")


def test_language_is_remembered_and_may_be_asked_for(browser: Browser, server: str) -> None:
    browser.open(server)
    browser.js("localStorage.clear()")
    browser.open(server)
    assert browser.js("return document.documentElement.lang") == "en"
    language(browser, "ko")
    browser.open(server)
    assert browser.js("return document.documentElement.lang") == "ko"
    browser.open(server + "?lang=en")
    assert browser.js("return document.documentElement.lang") == "en"
    browser.open(server + "#ko")
    assert browser.js("return document.documentElement.lang") == "ko"
    browser.js("localStorage.clear()")


def test_charts_are_drawn(browser: Browser, address: str) -> None:
    browser.open(address + "?lang=en")
    browser.wait(DRAWN)
    drawn = browser.js("""
      return [...document.querySelectorAll('.trial:not([hidden]) .chart')].map((figure) => {
        const canvas = figure.querySelector('canvas');
        const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        const colours = new Set();
        for (let i = 0; i < pixels.length; i += 4) if (pixels[i + 3] > 200) colours.add(pixels.slice(i, i + 3).join());
        return [figure.dataset.chart, colours.size, canvas.clientWidth, figure.querySelector('.plot').getAttribute('aria-label')];
      });""")
    names = [name for name, *_ in drawn]
    assert names[:8] == [
        "load",
        "latency",
        "percentiles",
        "outstanding",
        "errors",
        "cpu",
        "lateness",
        "interfaces",
    ]
    assert len(names) == 15  # the second leg had no errors
    for name, colours, width, label in drawn:
        assert colours > 20, name
        assert width > 300, name
        assert label, name
    assert "Delivered: mean" in drawn[0][3]


def test_chart_answers_to_keys_and_shows_its_data(browser: Browser, folder: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open((folder / "report.html").as_uri() + "?lang=en")
    browser.wait(DRAWN)
    browser.js("document.querySelector('[data-chart=load] .plot').focus()")
    browser.press(Keys.HOME, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    browser.wait("document.querySelector('[data-chart=load] [aria-live]').textContent.startsWith('3')")
    browser.wait("/^[0-9]/.test(document.querySelector('[data-chart=load] .legend .value').textContent)")
    browser.js("document.querySelector('[data-chart=load] summary').focus()")
    browser.press(Keys.ENTER)
    browser.wait("document.querySelector('[data-chart=load] details table')")
    assert browser.js("return document.querySelectorAll('[data-chart=load] details tbody tr').length") == 24


def test_tables_sort_by_keyboard(browser: Browser, folder: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open((folder / "report.html").as_uri() + "?lang=en")
    browser.js("document.querySelector('#thresholds details').open = true")
    column = "return [...document.querySelectorAll('#thresholds details tbody tr')].map((r) => Number(r.cells[3].dataset.s))"
    before = browser.js(column)
    assert len(before) == 5
    browser.js("document.querySelectorAll('#thresholds details thead button')[3].focus()")
    browser.press(Keys.ENTER)
    assert browser.js(column) == sorted(before)
    browser.press(Keys.SPACE)
    assert browser.js(column) == sorted(before, reverse=True)
    assert (
        browser.js("return document.querySelectorAll('#thresholds details th')[3].ariaSort") == "descending"
    )


def test_it_opens_with_figures_and_what_was_judged(browser: Browser, folder: Path) -> None:
    browser.open((folder / "report.html").as_uri() + "?lang=en")
    browser.wait("document.querySelector('[data-chart=judged-repetitions] canvas')")
    places = browser.js(
        """return ['#verdict', '[data-charts=judged]', '#thresholds', '#leg-0']
          .map((s) => document.querySelector(s).getBoundingClientRect().top)"""
    )
    assert places == sorted(places)
    spoken = browser.js(
        "return [...document.querySelectorAll('[data-charts=judged] .plot')].map((p) => p.getAttribute('aria-label'))"
    )
    assert len(spoken) == 2
    assert all("limit ≤\u00a05\u202fms" in one for one in spoken)
    assert "95\u202f% interval" in spoken[1]
    # the limit is drawn: without it the plot is another
    drawn = """const c = document.querySelector('[data-chart=judged] canvas');
      const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
      const bad = getComputedStyle(document.documentElement).getPropertyValue('--bad').trim();
      const rgb = [1, 3, 5].map((i) => parseInt(bad.slice(i, i + 2), 16)).join();
      let n = 0;
      for (let i = 0; i < d.length; i += 4) if (d.slice(i, i + 3).join() === rgb) n += 1;
      return n;"""
    assert browser.js(drawn) > 100


def test_passed_thresholds_are_folded_and_open_by_keyboard_and_on_paper(
    browser: Browser, folder: Path
) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open((folder / "report.html").as_uri() + "?lang=en")
    rows = "return [...document.querySelectorAll('#thresholds tbody tr')].filter((r) => r.checkVisibility()).length"
    assert browser.js(rows) == 1
    browser.js("dispatchEvent(new Event('beforeprint'))")
    assert browser.js(rows) == 6
    browser.js("dispatchEvent(new Event('afterprint'))")
    assert browser.js(rows) == 1
    browser.js("document.querySelector('#thresholds summary').focus()")
    browser.press(Keys.ENTER)
    assert browser.js(rows) == 6


def test_the_summary_is_copied_in_the_language_of_the_page(browser: Browser, address: str) -> None:
    browser.open(address + "?lang=en")
    browser.driver.execute_cdp_cmd(
        "Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    )
    for name, word in (("en", "**Fail: iot-demo.**"), ("ko", "**불합격: iot-demo.**")):
        language(browser, name)
        browser.js("document.querySelector('[data-copy=paragraph]').click()")
        browser.wait("document.querySelector('.paste .said').textContent")
        text = browser.driver.execute_async_script(
            "const done = arguments[0]; navigator.clipboard.readText().then(done, (e) => done(String(e)))"
        )
        assert text.startswith(word)
        assert text == browser.js("return document.querySelector('[data-copied=paragraph]').textContent")


def test_a_plot_is_saved_as_a_picture(browser: Browser, folder: Path) -> None:
    import struct

    browser.open((folder / "report.html").as_uri() + "?lang=en")
    browser.wait("document.querySelector('[data-chart=load] canvas')")
    width, height = browser.js(
        "const c = document.querySelector('[data-chart=load] canvas'); return [c.width, c.height]"
    )
    browser.js("document.querySelector('[data-chart=load] .tools button').click()")
    path = browser.downloads / "load.png"
    deadline = time.monotonic() + 60
    while not (path.exists() and path.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.05)
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    wide, high = struct.unpack(">II", data[16:24])
    # title above and legend below
    assert wide > width
    assert high > height + 40
    assert browser.complaints() == []


def test_devices_sort_and_filter(browser: Browser, folder: Path) -> None:
    browser.open((folder / "report.html").as_uri() + "?lang=en")
    browser.wait("document.querySelector('.flows tbody tr')")
    rows = "return [...document.querySelectorAll('.trial:not([hidden]) .flows')[0].querySelectorAll('tbody tr')].map((r) => [...r.cells].map((c) => c.textContent))"
    assert len(browser.js(rows)) == 15
    browser.js(
        "const s = document.querySelector('.flows select'); s.value = '=web'; s.dispatchEvent(new Event('input'))"
    )
    assert {row[0] for row in browser.js(rows)} == {"web"}
    browser.js(
        "const s = document.querySelector('.flows input[type=search]'); s.value = '17'; s.dispatchEvent(new Event('input'))"
    )
    assert [row[1] for row in browser.js(rows)] == ["17"]
    assert browser.js("return document.querySelector('.flows output').textContent").startswith("1 of 2")


def test_downloads_give_the_right_bytes(
    browser: Browser, folder: Path, result: dict[str, Any], flows_csv: str
) -> None:
    browser.open((folder / "report.html").as_uri())
    wanted = {
        "result.json": json.dumps(result, indent=2, ensure_ascii=False) + "\n",
        "series.csv": series_csv(Result.model_validate(result)),
        "flows.csv": flows_csv,
    }
    for name, text in wanted.items():
        browser.js("document.querySelector(`[data-download='${arguments[0]}']`).click()", name)
        path = browser.downloads / name
        deadline = time.monotonic() + 60
        while (
            not (path.exists() and path.stat().st_size == len(text.encode())) and time.monotonic() < deadline
        ):
            time.sleep(0.05)
        assert path.read_bytes() == text.encode(), name
    assert browser.complaints() == []


def test_hostile_names_do_nothing(browser: Browser, tmp_path: Path, result: dict[str, Any]) -> None:
    evil = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=2>\"'\u202eabc"
    changed = json.loads(json.dumps(result).replace('"sensors', '"' + json.dumps(evil)[1:-1]))
    changed["name"] = evil
    (tmp_path / "evil.html").write_text(render(changed), encoding="utf-8")
    browser.open((tmp_path / "evil.html").as_uri() + "?lang=ko")
    browser.wait(DRAWN)
    settled(browser)
    assert browser.js("return window.pwned") is None
    assert browser.js("return document.querySelector('h1').textContent.trim()") == visible(evil)
    assert browser.js("return document.querySelectorAll('img').length") == 0
    assert browser.complaints() == []


@pytest.mark.parametrize("width", [360, 768, 1600])
def test_no_sideways_scrolling(browser: Browser, folder: Path, width: int) -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        browser.open((folder / "report.html").as_uri())
        browser.wait(DRAWN)
        settled(browser)
        assert (
            browser.js("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
            == 0
        )
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("language", ["en", "ko"])
def test_small_screens_break_no_word(browser: Browser, folder: Path, language: str) -> None:
    metrics = {"width": 360, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        browser.open((folder / "report.html").as_uri() + f"?lang={language}")
        broken = browser.js(
            """return [...document.querySelectorAll(".sortable thead button, .sortable tbody th > bdi")].filter((e) => {
              const range = document.createRange();
              range.selectNodeContents(e);
              const lines = new Set([...range.getClientRects()].map((r) => Math.round(r.top))).size;
              return lines > e.textContent.trim().split(/[\\s/,-]+/).length;
            }).map((e) => e.textContent)"""
        )
        assert browser.js("return document.documentElement.lang") == language
        assert browser.js("return document.querySelectorAll('.sortable thead button').length") > 20
        assert broken == []
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_charts_fit_the_paper(browser: Browser, folder: Path) -> None:
    browser.open((folder / "report.html").as_uri())
    browser.wait("document.querySelectorAll('.uplot').length > 4")
    browser.js("dispatchEvent(new Event('beforeprint'))")
    widths = browser.js("return [...document.querySelectorAll('.uplot')].map((e) => e.offsetWidth)")
    browser.js("dispatchEvent(new Event('afterprint'))")
    assert set(widths) == {330}  # two and a gap on A4 between margins of 14 mm


def test_dark_and_print_have_their_own_colours(browser: Browser, folder: Path) -> None:
    def paper() -> str:
        return str(browser.js("return getComputedStyle(document.documentElement).backgroundColor"))

    media = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    try:
        browser.open((folder / "report.html").as_uri())
        assert paper() == "rgb(18, 20, 23)"
        browser.js("dispatchEvent(new Event('beforeprint'))")
        assert paper() == "rgb(255, 255, 255)"
        browser.js("dispatchEvent(new Event('afterprint'))")
        assert browser.pdf().startswith(b"%PDF")
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
