"""The lines of batch files, in the format of OpenAI's batch API; the names are those of vLLM's own runner.

vLLM's runner (vllm/entrypoints/launchers/run_batch.py) reads the same files, but starts an engine of its own.
"""

import uuid
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Body = dict[str, Any]


def _whole(body: Body) -> Body:
    if body.get("stream"):
        raise ValueError("a batch cannot stream; leave `stream` out")
    return body


class BatchRequestInput(BaseModel):
    """One line of the input."""

    model_config = ConfigDict(frozen=True)

    custom_id: Annotated[str, Field(min_length=1, max_length=512)]
    method: Literal["POST"] = "POST"
    url: Literal["/v1/chat/completions", "/v1/completions"]  # what a P/D pair answers
    body: Annotated[Body, AfterValidator(_whole)]


class BatchResponseData(BaseModel):
    """What the service answered."""

    status_code: int
    request_id: str
    body: Any


class BatchRequestError(BaseModel):
    """Why there is no answer."""

    code: str
    message: str


class BatchRequestOutput(BaseModel):
    """One line of output or errors."""

    id: str
    custom_id: str
    response: BatchResponseData | None
    error: BatchRequestError | None

    @property
    def answered(self) -> bool:
        """Whether this belongs into the output rather than among the errors."""
        return self.error is None and self.response is not None and self.response.status_code < 400


def new_id() -> str:
    """Identity of an output line."""
    return f"batch_req_{uuid.uuid4().hex}"
