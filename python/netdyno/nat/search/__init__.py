"""Searches of NATs: kinds of their own, a study as a search, advice that is measured."""
