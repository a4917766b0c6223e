"""Tables of the report: columns, cells, and the value that a cell sorts by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from netdyno.report.text import Data, Msg

Text = Msg | Data | str


@dataclass(frozen=True)
class Column:
    """A heading; numbers stand to the right."""

    label: Msg | Data
    numeric: bool = True


@dataclass(frozen=True)
class Cell:
    """What is shown, what it sorts by, a second line, and how it is marked (`good`, `bad`)."""

    text: Text
    sort: float | str | None = None
    note: Text | None = None
    mark: str = ""


@dataclass
class Table:
    """Rows under columns; without rows it is not shown."""

    caption: Msg
    columns: Sequence[Column]
    rows: list[list[Cell]] = field(default_factory=list)
    note: Msg | None = None

    def add(self, *cells: Cell) -> None:
        """One more row."""
        self.rows.append(list(cells))

    def keep(self, *wanted: bool) -> Table:
        """The table with only those columns."""
        columns = [c for c, keep in zip(self.columns, wanted, strict=True) if keep]
        rows = [[c for c, keep in zip(r, wanted, strict=True) if keep] for r in self.rows]
        return Table(self.caption, columns, rows, self.note)


def data(text: str, note: str | None = None) -> Cell:
    """A name out of the result."""
    return Cell(Data(text), text, Data(note) if note else None)


def number(text: str, value: float | None, *, mark: str = "", note: Text | None = None) -> Cell:
    """A formatted number and its value."""
    return Cell(text, value, note, mark)
