"""A virtual machine with this machine's root file system, read-only below memory, and a kernel of its own."""
