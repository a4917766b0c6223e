"""Pure statistics: numbers in, numbers out; nothing here reads a clock, a file or a socket."""
