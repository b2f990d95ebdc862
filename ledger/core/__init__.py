"""Pure protocol logic of the ledger: no IO, no clock, no randomness."""
