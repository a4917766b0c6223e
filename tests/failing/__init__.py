"""Servers that fail, each in one way: a small file for each behaviour, and what a run against it must say.

A behaviour (`silent.py`, `freezing.py`, …) decides what becomes of each message. It does not know how messages look, which
is a dialect (`dialects.py`), nor what carries them (`carriers.py`). `cases.py` says which behaviour is tried with which
protocol, and the right outcome of each. Behaviours act on counts of messages, never on time, so that every outcome is
certain on any machine; `slow` and `late` alone wait, since that is what they do.
"""
