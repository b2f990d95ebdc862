"""Twins and simulated clusters for tests of state machines."""
