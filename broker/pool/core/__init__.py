"""Decisions of a pool: values in, effects out."""
