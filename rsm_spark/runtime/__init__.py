"""The replica as a running thing: asyncio around the pure core."""
