"""Studies of virtual switches and service chains, after the figures of a paper."""
