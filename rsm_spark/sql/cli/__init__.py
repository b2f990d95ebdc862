"""`rsm sql`."""
