"""A replicated file store behind WebHDFS: directories and files are a state machine on the log."""
