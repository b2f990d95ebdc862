"""etcd's v3 API on the map: docs/etcd.md says what is served, and what differs."""
