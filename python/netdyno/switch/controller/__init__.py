"""Controllers of switches: one interface, and those that there are. A node runs as a process of its own."""
