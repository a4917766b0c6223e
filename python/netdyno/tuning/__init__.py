"""Tuning the kernel's network stack: what can be set, setting it so that it can be taken back, and proof."""
