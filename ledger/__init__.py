"""Apache BookKeeper's protocol in Python: client, bookie and the tools around them."""
