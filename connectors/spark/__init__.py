"""Deprecated name of `connectors.source`, for the modules that the documentation named."""
