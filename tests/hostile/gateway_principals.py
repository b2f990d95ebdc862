"""Principals of gateways under attack: ann with two logs, eve with one of them, and root."""

from __future__ import annotations

import hashlib
from pathlib import Path

SECRETS = {"ann": "a" * 40, "eve": "e" * 40, "root": "r" * 40}


def principals_file(folder: Path) -> str:
    """Write their file, and return its path."""
    text = ""
    for name, secret in SECRETS.items():
        role = 'role = "operator"' if name == "root" else 'role = "client"\naccess = "write"'
        logs = 'logs = ["shared", "hers"]\n' if name == "ann" else 'logs = ["shared"]\n' if name == "eve" else ""
        token = hashlib.sha256(secret.encode()).hexdigest()
        text += f'[[principal]]\nname = "{name}"\n{role}\n{logs}tokens = ["{token}"]\n'
    file = folder / "principals.toml"
    file.write_text(text)
    file.chmod(0o600)
    return str(file)
