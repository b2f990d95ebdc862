"""The decisions of auto-recovery. Pure: no IO, no clock."""
