"""The client of any service on a replicated log: finds the leader, follows it, asks again and applies nothing twice."""
