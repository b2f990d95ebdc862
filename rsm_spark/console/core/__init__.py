"""View, warnings and history of the console, as plain objects: no IO, no clock."""
