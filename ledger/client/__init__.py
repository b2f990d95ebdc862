"""The ledger's client: connections to bookies, handles to write and read ledgers. Start at `LedgerClient`."""
