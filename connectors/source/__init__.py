"""The Spark data source ``ledger``."""
