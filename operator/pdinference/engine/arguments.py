"""Converts a map of options to an argument vector."""

import json
from collections.abc import Mapping
from typing import Any


def to_argv(options: Mapping[str, Any]) -> list[str]:
    """Write options as arguments, in the order of the map.

    A value follows its option after `=`, so that a value with a leading dash is not parsed as an option. This is not
    possible for several values, so the schema rejects such values with a leading dash.

    Args:
        options: Long option names without dashes. True is a switch (`--name`), False its negation (`--no-name`). A list
            has several values (`--name a b`), each a string or JSON. A map is written as JSON, other values as text.
    """
    argv: list[str] = []
    for name, value in options.items():
        match value:
            case True:
                argv.append(f"--{name}")
            case False:
                argv.append(f"--no-{name}")
            case [_, *_]:
                argv += [f"--{name}", *(_as_text(item) for item in value)]
            case _:
                argv.append(f"--{name}={_as_text(value)}")
    return argv


def _as_text(value: object) -> str:
    """A string unchanged; other values as compact JSON, which is also the format of numbers in vLLM."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), sort_keys=True)
