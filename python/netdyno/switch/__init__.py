"""A system: virtual switches, service chains over them, and their controllers."""
