"""Load on a running store, made the way others make it, so that figures can be compared."""
