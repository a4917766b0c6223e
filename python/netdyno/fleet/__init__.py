"""Fleets: several hosts generate one load together, and their results are merged exactly."""
