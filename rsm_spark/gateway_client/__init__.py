"""Logs over HTTP as both ends see them: shapes of requests and answers, and a client."""
