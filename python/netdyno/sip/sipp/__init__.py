"""SIPp scenarios as scenarios of ours: XML in, steps out, and what cannot be played by line."""
