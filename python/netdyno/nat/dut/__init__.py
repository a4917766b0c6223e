"""Devices under test that translate addresses: the kernel's NAT, and what a graph with ours can do more."""
