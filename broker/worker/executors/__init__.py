"""What runs tasks: threads, coroutines, processes of Python, commands."""
