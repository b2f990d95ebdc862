"""Bytes that brokers, workers and clients exchange: workers' messages, and the declaration in an archive of code."""
