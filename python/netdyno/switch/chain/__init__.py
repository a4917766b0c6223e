"""Service chains: network functions behind a switch, steered by flows, with proof of the steering."""
