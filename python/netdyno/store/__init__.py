"""The result store: every run with its environment, raw series and histograms, in one SQLite file."""

from netdyno.store.store import Row, Store

__all__ = ["Row", "Store"]
