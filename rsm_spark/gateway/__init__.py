"""The gateway of plain logs: many producers and readers of many logs, over HTTP."""
