"""The map: bytes to bytes, with revisions, compare-and-set and ordered scans. Pure: no IO, no clock, no randomness."""
