"""Writes a lot, then fails."""

import sys

for _ in range(100_000):
    print("x" * 100)
sys.stderr.write("y" * 1_000_000 + "\n")
raise ValueError("the day has no flights")
