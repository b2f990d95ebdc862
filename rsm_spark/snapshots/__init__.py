"""Snapshots of a replicated state: the state at one place of its log, as files that need no code of the service."""
