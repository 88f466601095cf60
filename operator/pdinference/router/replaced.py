"""Members of a body that P gets in another form than the client sent them.

P would accept what D then refuses, and would keep KV cache that D does not fetch. So P gets a request only if vLLM takes
these members. D gets any other one whole, and refuses it in vLLM's words before it computes anything.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

import msgspec
from annotated_types import Ge
from pydantic import BaseModel, ValidationError, model_validator

from pdinference.router.untrusted import NotJsonError, decoded

STREAM_OPTIONS: Final = "stream_options"
_LONGEST: Final = 2**16
"""Bytes of all these members."""
_COMPLETIONS_DEFAULT: Final = 16
_Limit = Annotated[int, Ge(1)]


class _StreamOptions(BaseModel, extra="allow"):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class _Thinking(BaseModel):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int = 0


class Replaced(BaseModel):
    """The members and their types in vLLM (vllm/entrypoints/openai/*/protocol.py), which coerces as Pydantic does.

    Attributes:
        max_tokens: Limit on generated tokens, like the next two; an endpoint may know another one.
    """

    stream: bool | None = False
    stream_options: _StreamOptions | None = None
    max_tokens: _Limit | None = None
    max_completion_tokens: _Limit | None = None
    max_output_tokens: _Limit | None = None
    min_tokens: Annotated[int, Ge(0)] = 0
    store: bool | None = True
    # A connector may replace these.
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False

    @property
    def wants_usage(self) -> bool:
        """Whether the stream ends with the number of tokens."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @model_validator(mode="after")
    def _streams(self) -> Self:
        """vLLM refuses options of a stream without one."""
        if self.stream_options is not None and self.stream_options.model_fields_set and not self.stream:
            raise ValueError
        return self

    def limit(self) -> int | None:
        """The maximum number of generated tokens, if the request has one."""
        return self.max_completion_tokens or self.max_tokens or self.max_output_tokens


class _Chat(Replaced):
    @model_validator(mode="after")
    def _ordered(self) -> Self:
        limit = self.limit()
        if limit is not None and self.min_tokens > limit:
            raise ValueError
        return self


class _Completion(_Chat):
    max_tokens: _Limit | None = _COMPLETIONS_DEFAULT

    def limit(self) -> int:
        return self.max_tokens or _COMPLETIONS_DEFAULT


class _Response(Replaced):
    """`max_tokens` and `stream_options` mean nothing there."""


class _Message(Replaced):
    max_tokens: _Limit
    thinking: _Thinking | None = None

    @model_validator(mode="after")
    def _leaves_room(self) -> Self:
        if self.thinking and self.thinking.type == "enabled" and self.thinking.budget_tokens >= self.max_tokens:
            raise ValueError
        return self


_FORMS: Final[Mapping[str, type[Replaced]]] = {
    "/v1/chat/completions": _Chat,
    "/v1/completions": _Completion,
    "/v1/responses": _Response,
    "/v1/messages": _Message,
}


def replaced(path: str, members: Mapping[str, msgspec.Raw]) -> Replaced | None:
    """These members of a body; None if vLLM refuses one, or seems to.

    Args:
        path: Path of the endpoint, one of those with generated tokens.
        members: The members of the body.
    """
    form = _FORMS[path]
    found = {name: members[name] for name in form.model_fields if name in members}
    if sum(len(memoryview(value)) for value in found.values()) > _LONGEST:
        return None
    try:
        values: dict[str, Any] = {name: decoded(value, Any) for name, value in found.items()}
        return form.model_validate(values)
    except (NotJsonError, ValidationError):
        return None
