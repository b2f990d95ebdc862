"""Delta tables that follow a log: the table is the follower's state, its transaction carries the position."""
