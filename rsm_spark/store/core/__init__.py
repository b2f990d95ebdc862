"""Pure logic of the store's clients: no IO, no clock, no randomness."""
