"""The report, in pieces and in a real browser."""
