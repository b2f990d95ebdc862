"""The bookie: a server that stores entries of ledgers and speaks BookKeeper's protocol."""
