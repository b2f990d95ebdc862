"""A small HTTP server for those who watch a process, and what every listening port needs."""
