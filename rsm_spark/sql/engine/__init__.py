"""SQLite, as replicated tables use it: the only importer of apsw."""
