"""Deprecated name of `rsm_spark.map.client.blocking`; it goes with version 0.3."""

import warnings

from rsm_spark.map.client.blocking import BlockingMapClient

__all__ = ["BlockingMapClient"]

warnings.warn("rsm_spark.store.blocking is rsm_spark.map.client.blocking now", DeprecationWarning, stacklevel=2)
