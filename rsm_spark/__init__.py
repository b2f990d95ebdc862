"""Replicated state machines on a ledger, and the replicated state store."""
