"""The command `rsm`, and the commands for any log, whatever machine it feeds."""
