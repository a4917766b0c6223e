"""Studies of the paper about SIP servers, measured here: figures 10 to 12, and one for each factor."""
