"""Bodies whose members, or members of these, may reach the engine of vLLM. A seed gives the same ones each time."""

import json
import random
from collections.abc import Iterator
from typing import Any, Final

CHAT: Final = [{"role": "user", "content": "hello"}]
GOOD: Final[dict[str, dict[str, Any]]] = {
    "/v1/completions": {"prompt": "hello", "max_tokens": 2},
    "/v1/chat/completions": {"messages": CHAT, "max_tokens": 2},
    "/v1/messages": {"messages": CHAT, "max_tokens": 2},
    "/v1/responses": {"input": "hello", "max_output_tokens": 2},
}
"""A short request to each endpoint with generated tokens."""
_FOREIGN: Final = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_engine_id": "e",
    "remote_request_id": "r",
    "remote_host": "10.0.0.9",
    "remote_port": 5600,
    "remote_block_ids": [[1]],
    "tp_size": 1,
}
_SCALARS: Final = (
    *("", "a", "a" * 2000, "\x00", "\ud7ff", "kv_transfer_params", "[]", "null"),
    *(0, 1, -1, 0.0, 0.5, -0.0, 1e308, 2**31, 2**63, -(2**63) - 1, 2**64, 10**40),
    *(True, False, None),
)
_INTERNAL: Final = (
    *("kv_transfer_params", "ec_transfer_params", "kv_cache_report_mode", "session_id", "extra_args", "request_id"),
    *("do_remote_prefill", "do_remote_decode", "remote_host", "remote_block_ids", "lmcache.skip_save", "__class__"),
    *("ngram_size", "window_size", "whitelist_token_ids", "diffusion_canvas_length", "diffusion_max_steps"),
)
_TOP: Final = (
    *("vllm_xargs", "vllm_xargs", "vllm_xargs", "kv_transfer_params", "ec_transfer_params", "extra_args", "extra_body"),
    *("cache_salt", "mm_processor_kwargs", "media_io_kwargs", "chat_template_kwargs", "structured_outputs", "metadata"),
    *("logits_processors", "priority", "data_parallel_rank", "request_id", "session_id", "documents", "prompt_embeds"),
    *("logit_bias", "stop_token_ids", "allowed_token_ids", "bad_words", "repetition_detection", "stop", "n", "seed"),
    *("thinking_token_budget", "truncate_prompt_tokens", "logprob_token_ids", "logprobs", "top_logprobs", "min_tokens"),
    *("prompt_logprobs", "top_k", "min_p", "top_p", "temperature", "repetition_penalty", "stream_interval"),
    *(
        "ignore_eos",
        "routed_experts_prompt_start",
        "return_token_ids",
        "add_generation_prompt",
        "response_format",
        "watermarking",
    ),
    *("length_penalty", "use_beam_search", "echo", "suffix", "lora_request", "pooling_params", "tools", "tool_choice"),
)


def bodies(seed: int, count: int, *, model: str) -> Iterator[tuple[str, bytes]]:
    """Paths and bodies."""
    chance = random.Random(seed)  # noqa: S311 - the same each time
    for _ in range(count):
        path = chance.choice(list(GOOD))
        members = list({"model": model, **GOOD[path]}.items())
        members += [
            (chance.choice(_TOP), _value(chance, chance.choice((0, 1, 1, 2, 3)))) for _ in range(chance.randint(1, 3))
        ]
        if chance.random() < 0.1:
            members.append(("stream", True))
        yield path, _written(chance, members)


def _value(chance: random.Random, depth: int) -> Any:
    if depth == 0 or chance.random() < 0.2:
        return _FOREIGN if chance.random() < 0.1 else chance.choice(_SCALARS)
    if chance.random() < 0.3:
        return [_value(chance, depth - 1) for _ in range(chance.randint(0, 3))]
    return {chance.choice(_INTERNAL): _value(chance, depth - 1) for _ in range(chance.randint(0, 3))}


def _written(chance: random.Random, members: list[tuple[str, Any]]) -> bytes:
    """The members as an object, which may have one name twice, or escaped."""
    text = "{" + ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in members) + "}"
    if chance.random() < 0.2:
        text = text.replace("_", r"\u005f")
    return text.encode()
