"""What the router knows of members of requests, against the classes of the installed vLLM."""

import inspect
import re
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pdinference.engine.connectors import handover
from pdinference.router.arguments import NEVER, checked, is_internal
from pdinference.router.migration import _KEPT, _NOT_EXACT
from pdinference.router.replaced import replaced
from tests.router.hostile_bodies import GOOD

pytestmark = pytest.mark.vllm

_READERS = re.compile(r"""(?:extra_args|extra|vllm_xargs)\.get\(\s*["']([a-z_]+)["']""")
_DIFFUSION = "diffusion_"
_KNOWN = {"session_id", "ngram_size", "window_size", "whitelist_token_ids"}
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 2, 9, -1, 2.0, 2.5, 1e30, 10**30),
    *("", "1", "2.0", "yes", "off", "maybe", "a", [], [1], ["a"], {}, {"a": 1}),
)
_OPTIONS = tuple({name: value} for name in ("include_usage", "continuous_usage_stats", "other") for value in _VALUES)
_THINKING = tuple({"type": kind, "budget_tokens": number} for kind in ("enabled", "disabled", "a") for number in (1, 9))
_MEMBERS = (
    *("stream", "stream_options", "max_tokens", "max_completion_tokens", "max_output_tokens", "min_tokens", "store"),
    *("stop", "stop_token_ids", "ignore_eos", "n", "thinking"),
)


def test_all_arguments_that_vllm_reads_are_known() -> None:
    import vllm  # noqa: PLC0415

    root = Path(vllm.__file__).parent
    places = ("v1/**/*.py", "model_executor/models/*.py", "entrypoints/generate/**/*.py")
    files = [file for place in places for file in root.glob(place)]
    found = {name for file in files for name in _READERS.findall(file.read_text(encoding="utf-8"))}
    assert {name for name in found if is_internal(name)} == {"kv_transfer_params", "ec_transfer_params"}
    passing = {name for name in found if not (is_internal(name) or name in NEVER or name.startswith(_DIFFUSION))}
    assert passing == _KNOWN, "review the new arguments: router/arguments.py"
    for name, value in (("session_id", "a"), ("ngram_size", 1), ("window_size", 1), ("whitelist_token_ids", [1])):
        assert checked(msgspec.json.encode({name: value}), custom=False) == {name: value}


def test_all_members_that_p_returns_are_known() -> None:
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl import base_scheduler, push_scheduler  # noqa: PLC0415

    pull = (Path(base_scheduler.__file__).parent / "pull_scheduler.py").read_text(encoding="utf-8")
    texts = (inspect.getsource(base_scheduler), inspect.getsource(push_scheduler), pull)
    returned = re.compile(r"return delay_free_blocks, dict\((.*?)\n        \)", re.DOTALL)
    found = {name for text in texts for body in returned.findall(text) for name in re.findall(r"(\w+)=", body)}
    assert found, "the connector has another form"
    known = {field.name for field in msgspec.structs.fields(handover._NixlParams)}
    assert found <= known, "review the new members: engine/connectors/handover.py"


def test_all_members_that_vllm_reads_are_known_to_migration() -> None:
    of_the_router = {"stream", "n", "seed", "max_tokens", "max_completion_tokens", "min_tokens", "return_token_ids"}
    of_the_router |= {"response_format", "include_reasoning", "prompt_logprobs", "request_id"}
    of_the_prompt = {"prompt", "messages", "documents", "chat_template", "chat_template_kwargs", "add_special_tokens"}
    of_the_prompt |= {"add_generation_prompt", "continue_final_message", "truncate_prompt_tokens", "truncation_side"}
    of_images = {"media_io_kwargs", "mm_processor_kwargs", "mm_payload", "return_mm_kwargs"}
    with_others = {"tool_choice", "parallel_tool_calls", "logprob_token_ids", "return_tokens_as_token_ids"}
    with_others |= {"length_penalty"}  # of a beam search
    no_text = {"return_prompt_text", "return_token_offsets", "return_weight_versions", "routed_experts_prompt_start"}
    known = of_the_router | of_the_prompt | of_images | with_others | no_text | {*_KEPT} | _NOT_EXACT
    models = [_models()[path] for path in ("/v1/chat/completions", "/v1/completions")]
    found = {name for model in models for name in model.model_fields if not is_internal(name)}
    assert found - known == set(), "review the new members: router/migration.py"


def _models() -> dict[str, Any]:
    from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest  # noqa: PLC0415
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest  # noqa: PLC0415
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest  # noqa: PLC0415
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest  # noqa: PLC0415

    return {
        "/v1/chat/completions": ChatCompletionRequest,
        "/v1/completions": CompletionRequest,
        "/v1/messages": AnthropicMessagesRequest,
        "/v1/responses": ResponsesRequest,
    }


def test_p_gets_a_request_only_if_vllm_takes_the_members_that_p_gets_in_another_form() -> None:
    for (path, model), streams in product(_models().items(), (False, True)):
        for name in _MEMBERS:
            values = {"stream_options": (*_VALUES, *_OPTIONS), "thinking": (*_VALUES, *_THINKING)}.get(name, _VALUES)
            for value in values:
                body = {"model": "m", **GOOD[path], **({"stream": True} if streams else {}), name: value}
                raw = {member: msgspec.Raw(msgspec.json.encode(one)) for member, one in body.items()}
                ours = replaced(path, raw) is not None
                theirs = _accepts(model, body)
                assert theirs or not ours or name not in model.model_fields or _p_refuses(name), (path, body)
                # vLLM refuses limits below 1 later, and compares the minimum with the limit then.
                assert ours or not theirs or _refused_later(name, value, body), (path, body)


def _accepts(model: Any, body: dict[str, Any]) -> bool:
    from vllm.exceptions import VLLMValidationError  # noqa: PLC0415

    try:
        model.model_validate(body)
    except (ValueError, VLLMValidationError):
        return False
    return True


def _p_refuses(name: str) -> bool:
    """Whether P gets a member as the client sent it."""
    return name in {"n", "thinking"}


def _refused_later(name: str, value: Any, body: dict[str, Any]) -> bool:
    if name == "stream_options":  # of a stream whose member is true in another form
        return body.get("stream") is not True
    return name.endswith("_tokens")
