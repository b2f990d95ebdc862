"""The log on the ledger: its chain, its entries in order, who leads it."""
