"""Deprecated name of `rsm_spark.map.client.client`; it goes with version 0.3."""

import warnings

from rsm_spark.map.client.client import MapClient

__all__ = ["MapClient"]

warnings.warn("rsm_spark.store.client is rsm_spark.map.client.client now", DeprecationWarning, stacklevel=2)
