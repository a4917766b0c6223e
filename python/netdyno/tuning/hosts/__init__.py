"""A setting proven over hosts of a fleet: each measures the same pairs with its own kernel."""
