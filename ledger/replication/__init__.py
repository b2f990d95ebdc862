"""Auto-recovery: who notices that a ledger lacks copies, and who makes them."""
