"""The laboratory: namespaces joined by links, devices under test, workloads, and what the kernel counts."""
