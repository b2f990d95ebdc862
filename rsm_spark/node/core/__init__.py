"""Decisions about a machine's processes, without IO and without a clock."""
