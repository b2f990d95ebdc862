"""`rsm task` and `rsm tenant`."""
