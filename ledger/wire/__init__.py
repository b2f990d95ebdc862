"""BookKeeper's bytes: frames, packets, entries, digests, metadata values, paths. Pure functions of bytes."""
