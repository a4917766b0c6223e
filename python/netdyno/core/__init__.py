"""The core: its process, the connection to it, what it says of its models, and what a run leaves."""
