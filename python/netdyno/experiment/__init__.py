"""Experiments: from a specification to trials, and from trials to a verdict."""
