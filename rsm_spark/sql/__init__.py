"""Replicated SQL tables: SQLite on each replica, changed rows in the log."""
