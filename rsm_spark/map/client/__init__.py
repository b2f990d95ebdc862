"""The map's clients: for asyncio and for threads."""
