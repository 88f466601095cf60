"""Times of steps that a vLLM was measured with (engine/scripts/calibrate.py), and what the model of a step says.

Tests: tests/advise/fitting/test_fitting.py, tests/advise/commands/calibrate/test_calibrate.py
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from pdinference.performance.step import StepModel

_Tokens = Annotated[int, Field(ge=0, le=10_000_000)]
_Seconds = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]
_Amount = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
_Text = Annotated[str, Field(max_length=300)]


class Strict(BaseModel):
    """Part of a file. Unknown members are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class Point(Strict):
    """One measured time.

    Attributes:
        kind: `prompt`: a prompt alone. `decode`: a step of running requests. `mixed`: a step with a prompt beside them,
            and the one after it. `backlog`: a step full of prompts, beside one running request.
        tokens: Length of each prompt.
        running: Running requests.
        context: Tokens of context of each of them.
        seconds: The median.
    """

    kind: Literal["prompt", "decode", "mixed", "backlog"]
    tokens: _Tokens
    running: Annotated[int, Field(ge=0, le=100_000)]
    context: _Tokens
    seconds: _Seconds

    @model_validator(mode="after")
    def _has_a_prompt(self) -> Self:
        """The model of a step takes no time for an empty prompt, and a fit compares logarithms of times."""
        if self.kind == "prompt" and not self.tokens:
            raise PydanticCustomError("empty_prompt", "A prompt has at least one token")
        return self

    def __str__(self) -> str:
        prompt = f"prompt of {self.tokens} tokens" if self.tokens else ""
        running = f"{self.running} running with {self.context} tokens" if self.running else ""
        return f"{self.kind} ({', '.join(part for part in (prompt, running) if part)})"


class Overhead(Strict):
    """Seconds of a request beside the engine."""

    tokens: _Tokens
    seconds: Annotated[float, Field(ge=-3600, le=3600, allow_inf_nan=False)]


class ServerWindow(Strict):
    """What the API server did each second of a window.

    Attributes:
        running: Requests that were running.
        cores: CPU seconds of its process.
        steps: Steps of the engine.
        tokens: Generated tokens.
        events: Events of the streams: fewer than tokens, if it was behind.
        requests: Requests that ended.
    """

    running: Annotated[int, Field(ge=0, le=100_000)]
    cores: _Amount
    steps: _Amount
    tokens: _Amount
    events: _Amount
    requests: _Amount


class Measurement(Strict):
    """The result of the measuring program.

    Attributes:
        about: What the command passed to the program.
        config: The model's config.json.
        vllm: Version of vLLM.
        step_tokens: `max-num-batched-tokens`.
        overheads: Seconds of requests beside the engine.
        servers: CPU time of the API server.
        token_cpu: CPU seconds of it for a token, by programs that did not measure `servers`.
        notes: What was left out.
    """

    api_version: Literal["pdinference.io/measurement-v1"]
    about: dict[str, Any] = {}
    config: dict[str, Any] | None = None
    vllm: _Text
    date: _Text
    step_tokens: Annotated[int, Field(ge=1, le=10_000_000)]
    points: Annotated[tuple[Point, ...], Field(max_length=500)]
    overheads: Annotated[tuple[Overhead, ...], Field(max_length=500)] = ()
    servers: Annotated[tuple[ServerWindow, ...], Field(max_length=100)] = ()
    token_cpu: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.0
    notes: Annotated[tuple[_Text, ...], Field(max_length=100)] = ()


def predicted(point: Point, model: StepModel, step_tokens: int) -> float:
    """Seconds of a point by the model of a step."""
    match point.kind:
        case "prompt":
            return model.prompt(point.tokens, step_tokens)
        case "decode":
            return model.decode_step(point.running, point.context)
        case "mixed":
            alone = model.decode_step(point.running, point.context)
            ahead = alone - model.launch(point.running)
            return _beside(point, model, point.tokens, 1, ahead) + alone + model.calibration.after_prefill
        case _:
            tokens = step_tokens - point.running
            return _beside(point, model, tokens, max(1, round(tokens / max(1, point.tokens))))


def _beside(point: Point, model: StepModel, tokens: int, prompts: int, ahead: float = 0.0) -> float:
    """A step with prompts of the point's length beside its running requests."""
    pairs = tokens * min(point.tokens, tokens) / 2
    kv = point.running * model.kv_seconds(point.context)
    seconds = model.prefill(tokens, pairs, point.running, prompts, kv=kv, ahead=ahead)
    return max(seconds, model.calibration.shortest_step)
