"""`rsm map` and `rsm store run`."""
