"""Typed Delta tables of a log's state, beside its snapshots in the lake."""
