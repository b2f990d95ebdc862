"""The console of a cluster: one page for people, made of what all processes and ZooKeeper tell."""
