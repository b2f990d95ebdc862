"""Deprecated name of `rsm_spark.map`, for the modules that the documentation named."""
