"""The status of a stored PDInference."""

from typing import Any

from pydantic import ValidationError

from pdinference.api.v1alpha1.status import Status


def stored_status(status: dict[str, Any]) -> Status:
    """The status; empty if another version of the operator wrote it."""
    try:
        return Status.model_validate(status)
    except ValidationError:
        return Status()
