"""Converts API keys of vLLM (`--api-key`, `VLLM_API_KEY`) to `spec.router.apiKeys`.

Tests: tests/conversion/test_field_points.py, tests/conversion/test_resource.py
"""

import re
from collections.abc import Iterator
from typing import Any

from pdinference.conversion.launch import Finding, Launch, Remark
from pdinference.conversion.left_out import reason_to_leave_out

VARIABLE = "VLLM_API_KEY"
_REFERENCE = re.compile(r"\$(?:\(([A-Za-z_]\w*)\)|\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))", re.ASCII)
_EVERY_KEY = (
    "The router reads the API keys of clients from this Secret: each of its keys is the name of a client, and its "
    "value has a key of at least 16 characters on each line. If the Secret also has keys for something else, they "
    "would be API keys too: create one of its own."
)


def referred(text: str) -> str:
    """The variable that a text refers to as a whole (`$A`, `${A}`, `$(A)`); empty for other texts."""
    match = _REFERENCE.fullmatch(text)
    return next(filter(None, match.groups()), "") if match else ""


def api_key(value: Any, _options: Any, launch: Launch) -> Iterator[Finding]:
    """The Secret of the option's variable; without one, a remark that does not repeat the key."""
    names = [referred(str(each)) for each in value] if isinstance(value, list) else [referred(str(value))]
    yield from secret_keys(next((name for name in names if name in launch.secrets), ""), "--api-key", launch)


def secret_keys(variable: str, subject: str, launch: Launch) -> Iterator[Finding]:
    """The Secret that a variable comes from, as the Secret of the router's API keys."""
    name = launch.secrets.get(variable, ("", ""))[0]
    if name:
        yield "router.apiKeys.secretName", name
        yield Remark(f"Secret {name}", _EVERY_KEY, left_out=False)
    else:
        yield Remark(subject, reason_to_leave_out("api-key") or "")
