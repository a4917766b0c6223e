"""netdyno: put a known load on a network, measure what it really delivers, tune it."""

__version__ = "0.1.0"
