"""The gRPC edge of the broker: workers' streams."""
