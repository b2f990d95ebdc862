"""The demonstration: one log, end to end, on real flights, with kills in the middle."""
