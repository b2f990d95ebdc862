"""The HTTP JSON API of the broker and its dashboard: the one place that knows the web framework."""
