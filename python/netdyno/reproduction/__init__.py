"""`netdyno reproduce`: the tables and figures of the papers as commands, and one report of all of them."""
