"""The change feed of SQL tables: rows that came, changed and went, as the log tells them."""
