"""Data frames and tables of what the API returns."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape as quoted
from typing import Any

from netdyno.errors import Error


def pandas_module(instead: str = "") -> Any:
    """The package, which is asked for only where a data frame is."""
    try:
        import pandas
    except ImportError as e:
        fix = f"pip install pandas{instead}"
        raise Error("ND-92-23", "pandas is not installed", fix=fix) from e
    return pandas


def table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """As HTML, for notebooks."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{quoted(str(cell))}</{tag}>" for cell in row) + "</tr>"

    body = "".join(cells("td", row) for row in rows)
    return f"<table><caption>{quoted(caption)}</caption>{cells('th', heads)}{body}</table>"
