"""OpenFlow 1.3 without I/O: messages as bytes, and flow entries that can be compared."""
