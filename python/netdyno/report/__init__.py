"""The report: one result as one HTML page that people want to show somebody.

`render.render(result)` gives the page, `studies.render_folder(folder)` that of whatever a run has left.
What it says is decided here in Python (`page.py` and what it calls) and laid
out by `template/`; the modules in `assets/` only draw, sort, switch the language and hand out the raw files.
Every text is a gettext message: `locale/en.po` and `locale/ko.po`.
"""
