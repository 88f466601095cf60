"""Options and environment variables of a rendered command."""

import json
from typing import Any

from pdinference.engine.command import Command


def option(command: Command, name: str) -> str | None:
    """The last value of an option, which is the one that counts."""
    values = [a.removeprefix(f"--{name}=") for a in command.arguments if a.startswith(f"--{name}=")]
    return values[-1] if values else None


def environment(command: Command) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in command.environment}


def transfer(command: Command) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(option(command, "kv-transfer-config") or "")
    return value
