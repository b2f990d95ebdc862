"""A broker as a server: a replica of the task state, its workers' streams, its process."""
