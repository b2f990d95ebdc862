"""Storage of one bookie: journal, sorted segments, index. All file access goes through `ledger.storage.disk`."""
