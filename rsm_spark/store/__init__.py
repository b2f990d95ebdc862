"""The replicated state store: a key-value map that survives its servers, and the clients that never apply twice."""
