"""Benchmarks: one JSON line per figure, median and range of several rounds; nothing here passes or fails by a clock."""
