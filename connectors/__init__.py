"""The ledger and the replicated log as a Spark source, and Delta tables that follow a log."""
