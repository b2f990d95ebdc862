"""A replica as a server: its ports, its probes, its process."""
