"""The result store: every run with its environment, raw series and histograms, in one SQLite file."""

from netdyno.store.store import NAME, Row, Store, trusted

__all__ = ["NAME", "Row", "Store", "trusted"]
