"""A whole broker in virtual time: the real cores around a simulated log, network, executors and clients."""
