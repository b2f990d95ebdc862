"""Workers: processes that run the broker's tasks, with functions, coroutines, processes or commands of the user's."""
