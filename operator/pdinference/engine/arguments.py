"""Options as a map, turned into an argument vector; never into text that a shell could read."""

import json
from collections.abc import Mapping
from typing import Any


def to_argv(options: Mapping[str, Any]) -> list[str]:
    """Write options as arguments, in the order of the map.

    A value is joined to its option by `=`, so that one that begins with a dash cannot pass for an option. Several
    values cannot be joined; the resource refuses those that begin with a dash.

    Args:
        options: Long option names without dashes. True is a switch (`--name`), False its opposite (`--no-name`), a list
            gives several values (`--name a b`), each as text or JSON; a map is passed as JSON, anything else as text.
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
    """Text as it is; everything else as compact JSON, which is also how vLLM reads numbers."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), sort_keys=True)
