"""Pure logic of the replicated state machine: no IO, no clock, no randomness."""
