"""Ports of outside addresses, as the daemon has them."""

CLIENT_PORTS = 65_536 - 1024
"""Ports of an address that are given out (RFC 4787 section 4.2.1)."""
PER_BLOCK = 512
"""Of a block where a configuration says nothing."""
