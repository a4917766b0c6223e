"""The report: one result as one HTML page that people want to show somebody.

`render(result)` gives the page. What it says is decided here in Python (`page.py` and what it calls) and laid
out by `template/`; the modules in `assets/` only draw, sort, switch the language and hand out the raw files.
Every text is a gettext message: `locale/en.po` and `locale/ko.po`.
"""

from netdyno.report.render import render
from netdyno.report.studies import render_folder

__all__ = ["render", "render_folder"]
