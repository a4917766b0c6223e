"""The site of the documentation (`./do docs`): what goes into it, and that broken links are found."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "tools"))
import docs  # noqa: E402


def test_every_page_is_in_it_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    assert list(docs.fill(tmp_path)) == []
    pages = tmp_path / "pages"
    listed = {str(one.relative_to(TOP)) for one in (TOP / "docs").rglob("*.md")}
    assert listed <= {str(one.relative_to(pages)) for one in pages.rglob("*.md")}
    # files of the tree that pages lead to are there, and folders have a page
    assert (pages / "examples/ci/load-test").read_bytes() == (TOP / "examples/ci/load-test").read_bytes()
    assert "[load.yaml](load.yaml)" in (pages / "examples/ci/README.md").read_text()
    assert "examples/ci/README.md)" in (pages / "docs/howto/automation.md").read_text()
    nav = json.loads((tmp_path / "mkdocs.yml").read_text().rpartition("nav: ")[2])
    shown = [name for section in nav for one in section.values() if isinstance(one, list) for name in one]
    assert {path for one in shown for path in one.values()} >= listed


def test_a_link_that_leads_nowhere_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    good = {"README.md": "# A\n[b](docs/b.md) [c](docs) `x`\n```\n[d](d.md)\n```\n", "docs/b.md": "# B\n"}
    for name, more in ((None, ""), ("[e](e.md)", "README.md: e.md"), ("[f](../f.md)", "README.md: ../f.md")):
        tree = tmp_path / str(len(more))
        for path, text in good.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text + (name or "") * (path == "README.md"))
        monkeypatch.setattr(docs, "TOP", tree)
        monkeypatch.setattr(docs, "tracked", lambda: set(good))
        faults = list(docs.fill(tree / "out"))
        assert faults == ([f"{more} leads nowhere in the tree"] if more else [])
        assert "docs/README.md)" in (tree / "out/pages/README.md").read_text()


def test_links_of_a_built_site_are_followed(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "index.html").write_text(
        '<a id="top" href="sub/page.html#here">x</a><a href="http://x/">y</a>'
    )
    (tmp_path / "sub/page.html").write_text('<p id="here"><a href="../#top">x</a><img src="no.png">')
    assert list(docs.check(tmp_path)) == ["sub/page.html: no.png leads nowhere"]
    (tmp_path / "index.html").write_text('<a href="sub/page.html#gone">x</a>')
    assert [line.partition(":")[0] for line in docs.check(tmp_path)] == [
        "index.html",
        "sub/page.html",
        "sub/page.html",
    ]
    (tmp_path / "empty").mkdir()
    assert list(docs.check(tmp_path / "empty"))
