"""The site of the documentation: pages of the tree, and the files that they link to, as MkDocs wants them.

`python3 tools/docs.py FOLDER` fills FOLDER with `pages/` and `mkdocs.yml`; `./do docs` builds the site of it.
Pages keep their places in the tree, so that their links lead to the same pages as in a checkout.
`python3 tools/docs.py --check SITE` follows every local link of a built site. Both list what leads nowhere,
and end with 1 where there is any.
"""

import json
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, unquote

TOP = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(\]\(|src=\")([^)\s\"]+)")
CODE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
HOME = "README.md"
SECTIONS = {
    "Tutorial": ["docs/tutorial"],
    "How to": ["docs/howto"],
    "Methodology": ["docs/methodology"],
    "Reference": ["docs/reference"],
}
PROJECT = ["ARCHITECTURE.md", "SPECIFICATION.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
CONFIGURATION = """\
# made by tools/docs.py
site_name: netdyno
site_description: A network performance lab. It loads, measures and tunes.
docs_dir: pages
site_dir: site
use_directory_urls: false
theme:
  name: material
  font: false
  features: [navigation.indexes, navigation.top, content.code.copy, toc.follow]
  palette:
    - media: "(prefers-color-scheme: light)"
      scheme: default
      toggle: {icon: material/weather-night, name: Dark}
    - media: "(prefers-color-scheme: dark)"
      scheme: slate
      toggle: {icon: material/weather-sunny, name: Light}
plugins: [search]
markdown_extensions:
  - tables
  - attr_list
  - md_in_html
  - pymdownx.superfences
  - pymdownx.highlight
  - toc: {permalink: true, slugify: !!python/object/apply:pymdownx.slugs.slugify {kwds: {case: lower}}}
validation: {nav: {omitted_files: ignore}, links: {not_found: warn, anchors: warn, unrecognized_links: warn}}
"""
"""Without its list of pages, which is appended; anchors are those of the tree's pages on the web."""


def title(page: Path) -> str:
    """The first heading of a page; else its name."""
    found = re.search(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return found[1].strip("`* ") if found else page.stem


def tracked() -> set[str]:
    """The files of the tree that git knows, and new ones that it does not ignore."""
    command = ["git", "-C", str(TOP), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    return {name for name in names if name and (TOP / name).is_file()}


class Site:
    """The pages, and all that they need."""

    def __init__(self) -> None:
        self.files = tracked()
        self.folders = {str(parent) for name in self.files for parent in Path(name).parents}
        self.pages: dict[str, str] = {}
        """Path → text."""
        self.copies: set[str] = set()
        self.faults: list[str] = []

    def collect(self) -> None:
        """Take the pages of the lists, and what they lead to."""
        listed = [HOME, *PROJECT]
        listed += sorted(n for n in self.files if n.startswith("docs/") and n.endswith(".md"))
        todo = [name for name in listed if name in self.files]
        while todo:
            name = todo.pop()
            if name in self.pages:
                continue
            text = self._listing(name) if name not in self.files else (TOP / name).read_text()
            self.pages[name], found = self._linked(name, text)
            todo += found

    def _linked(self, name: str, text: str) -> tuple[str, list[str]]:
        """A page with its links to folders led to their pages; and the pages that it leads to."""
        found: list[str] = []

        def lead(match: re.Match[str]) -> str:
            link = match[2]
            if re.match(r"[a-z]+:|#", link):
                return match[0]
            path, mark, anchor = link.partition("#")
            to = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(path)))
            if to in self.files:
                if to.endswith(".md"):
                    found.append(to)
                else:
                    self.copies.add(to)
                return match[0]
            if to in self.folders and not to.startswith(".."):
                page = f"{to}/README.md"
                found.append(page)
                back = posixpath.relpath(page, posixpath.dirname(name) or ".")
                return f"{match[1]}{quote(back)}{mark}{anchor}"
            self.faults.append(f"{name}: {link} leads nowhere in the tree")
            return match[0]

        parts, at = [], 0
        for block in CODE.finditer(text):
            parts += [LINK.sub(lead, text[at : block.start()]), block[0]]
            at = block.end()
        return "".join([*parts, LINK.sub(lead, text[at:])]), found

    def _listing(self, name: str) -> str:
        """The page of a folder that has none: its files."""
        folder = posixpath.dirname(name)
        there = sorted(one for one in self.files if posixpath.dirname(one) == folder)
        below = sorted(one for one in self.folders if posixpath.dirname(one) == folder and one != folder)
        lines = [f"- [{Path(one).name}]({quote(Path(one).name)})" for one in (*below, *there)]
        return "\n".join([f"# {folder}", "", *lines, ""])

    def nav(self) -> list[dict[str, object]]:
        """The list of pages: sections in order, pages of each by title."""
        made: list[dict[str, object]] = [{"netdyno": HOME}]
        for section, folders in SECTIONS.items():
            names = [n for n in self.pages if posixpath.dirname(n) in folders]
            made.append({section: self._titled(sorted(names, key=lambda n: title(TOP / n).casefold()))})
        made.append({"Project": self._titled([name for name in PROJECT if name in self.pages])})
        return made

    def _titled(self, names: list[str]) -> list[dict[str, str]]:
        return [{title(TOP / name): name} for name in names]

    def write(self, folder: Path) -> None:
        """Fill a folder; what was in it is removed."""
        shutil.rmtree(folder / "pages", ignore_errors=True)
        for name, text in self.pages.items():
            to = folder / "pages" / name
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_text(text)
        for name in self.copies:
            to = folder / "pages" / name
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(TOP / name, to)
        nav = json.dumps(self.nav(), ensure_ascii=False)
        (folder / "mkdocs.yml").write_text(f"{CONFIGURATION}nav: {nav}\n")


class Links(HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take what an element has."""
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.add(value)


def check(site: Path) -> Iterator[str]:
    """Follow every local link of a built site; what leads nowhere, a line each."""
    pages = {page.resolve(): Links(page) for page in sorted(site.rglob("*.html"))}
    for page, own in pages.items():
        # whose links begin at the root of a web server, which nobody has named
        if page.name == "404.html":
            continue
        for link in sorted(own.links):
            if re.match(r"[a-z]+:|//", link):
                continue
            path, _, anchor = unquote(link).partition("#")
            to = (page.parent / path.partition("?")[0]).resolve() if path else page
            to = to / "index.html" if to.is_dir() else to
            if not to.is_file() or (anchor and to in pages and anchor not in pages[to].anchors):
                yield f"{page.relative_to(site.resolve())}: {link} leads nowhere"
    if not pages:
        yield f"{site}: there are no pages"


def fill(folder: Path) -> Iterator[str]:
    """Fill a folder; what is wrong, a line each."""
    site = Site()
    site.collect()
    folder.mkdir(parents=True, exist_ok=True)
    site.write(folder)
    yield from site.faults


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--check":
        wrong = list(check(Path(sys.argv[2])))
    elif len(sys.argv) == 2:
        wrong = list(fill(Path(sys.argv[1])))
    else:
        sys.exit("usage: tools/docs.py [--check] FOLDER")
    for line in wrong:
        print(line)
    sys.exit(bool(wrong))
