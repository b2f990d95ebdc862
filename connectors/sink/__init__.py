"""The Spark sink `ledger`: rows of a table or a stream become commands of a replicated service, each applied once."""
