"""Deprecated name of `connectors.source.listener`; it goes with version 0.3."""

import warnings

from connectors.source.listener import serve_progress

__all__ = ["serve_progress"]

warnings.warn("connectors.spark.listener is connectors.source.listener now", DeprecationWarning, stacklevel=2)
