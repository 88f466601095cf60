"""Members of a body that P gets in another form than the client sent them.

P would accept what D then refuses, and would keep KV cache that D does not fetch. So P gets a request only if vLLM
takes these members. D gets any other one whole, and refuses it in vLLM's words before it computes anything.
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

    An endpoint ignores the members that its form does not have.
    """

    stream: bool | None = False

    @property
    def wants_usage(self) -> bool:
        """Whether the stream ends with the number of tokens because the client wants it."""
        return False

    @property
    def answers(self) -> int:
        """The number of answers."""
        return 1

    def limit(self) -> int | None:
        """The maximum number of generated tokens, if the request has one."""
        return None


class _Stops(Replaced):
    # A connector may replace these.
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False


class _Completion(_Stops):
    stream_options: _StreamOptions | None = None
    max_tokens: _Limit | None = _COMPLETIONS_DEFAULT
    min_tokens: Annotated[int, Ge(0)] = 0
    n: int | None = 1

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def answers(self) -> int:
        return 1 if self.n is None else self.n

    def limit(self) -> int | None:
        return self.max_tokens or _COMPLETIONS_DEFAULT

    @model_validator(mode="after")
    def _agree(self) -> Self:
        """vLLM refuses options of a stream without one, and a minimum above the maximum."""
        if self.stream_options is not None and self.stream_options.model_fields_set and not self.stream:
            raise ValueError
        if self.min_tokens > (self.limit() or self.min_tokens):
            raise ValueError
        return self


class _Chat(_Completion):
    max_tokens: _Limit | None = None
    max_completion_tokens: _Limit | None = None

    def limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens


class _Response(_Stops):
    max_output_tokens: _Limit | None = None
    store: bool | None = True


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
