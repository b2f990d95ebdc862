"""`rsm node run`: the processes that one machine's `node.toml` names, started, watched and ended as one."""
