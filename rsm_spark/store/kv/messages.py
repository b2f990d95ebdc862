"""Deprecated name of `rsm_spark.map.messages`; it goes with version 0.3."""

import warnings

from rsm_spark.map.messages import Compare, Delete, Increment, Put

__all__ = ["Compare", "Delete", "Increment", "Put"]

warnings.warn("rsm_spark.store.kv.messages is rsm_spark.map.messages now", DeprecationWarning, stacklevel=2)
