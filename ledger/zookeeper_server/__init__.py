"""ZooKeeper's server: its JARs, checked by hash, its configuration, and the process.

`rsm zookeeper run` runs it, alone or as one of an ensemble; `rsm up` runs the same in a smaller form.
"""
