"""The broker's state machine: pure and synchronous, commands in, records out."""
