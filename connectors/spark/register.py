"""Deprecated name of `connectors.register`; it goes with version 0.3."""

import warnings

from connectors.register import register

__all__ = ["register"]

warnings.warn("connectors.spark.register is connectors.register now", DeprecationWarning, stacklevel=2)
