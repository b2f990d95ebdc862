"""Pure logic of a worker: no IO, no clock, no randomness."""
