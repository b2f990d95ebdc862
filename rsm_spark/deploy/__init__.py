"""`rsm init-cluster`: all files of a cluster, from the names of its machines: configuration, certificates, keys."""
