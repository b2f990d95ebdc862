"""`rsm files`: serve a file store, and use one."""
