"""Executors of tasks: threads, coroutines, processes of Python, commands."""
