"""The metadata store over ZooKeeper: the only place that knows kazoo."""
