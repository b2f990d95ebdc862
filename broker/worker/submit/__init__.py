"""Whole Spark applications as tasks: type `spark_submit`."""
