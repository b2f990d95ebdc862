"""Backups of logs: what is copied, where it lies, how it is checked, and how a log is made of it again."""
