"""PostgreSQL's wire protocol as a port of a replica of SQL tables; see docs/sql.md."""
