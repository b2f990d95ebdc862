"""gRPC between the store's clients and a replica; the only place of this package that imports grpc."""
