"""What this machine can do, and what is missing for the rest."""
