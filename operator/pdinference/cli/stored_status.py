"""The status of a stored PDInference.

Tests: tests/cli/test_status.py
"""

from typing import Any

from pydantic import ValidationError

from pdinference.api.v1alpha1.status import Status


def stored_status(status: dict[str, Any]) -> Status:
    """The status without members of a newer operator; empty if it does not parse."""
    try:
        return Status.model_validate(status, extra="ignore")
    except ValidationError:
        return Status()
