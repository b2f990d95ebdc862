"""Clients of replicated SQL tables."""
