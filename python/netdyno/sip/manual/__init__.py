"""Manual mode: one message composed, sent and answered."""
