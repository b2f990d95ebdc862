"""The state of a log at a revision, folded by Spark from the log and the lake: proofs, snapshots, time travel."""
