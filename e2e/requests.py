"""Requests as clients send them."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import httpx


@dataclass(frozen=True)
class Answer:
    """One answer.

    Attributes:
        text: What the model wrote.
        prompt_tokens: Length of the prompt.
        completion_tokens: Length of the answer.
        seconds: From the request to the last byte.
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float


def unseen_prompt(repeats: int) -> str:
    """A prompt that begins like no other, so that no pod has KV cache of it."""
    return f"{uuid4()} {'the quick brown fox ' * repeats}"


def chat(url: str, model: str, content: str, max_tokens: int = 32) -> Answer:
    """Send a chat completion.

    Raises:
        httpx.HTTPError: It failed.
    """
    messages = [{"role": "user", "content": content}]
    body = _post(f"{url}/v1/chat/completions", {"model": model, "messages": messages, "max_tokens": max_tokens})
    return _answer(body, body["choices"][0]["message"]["content"])


def complete(
    url: str,
    model: str,
    prompt: str,
    max_tokens: int = 32,
    *,
    ignore_eos: bool = False,
    timeout: float = 120,
    request_id: str | None = None,
) -> Answer:
    """Send a completion.

    Args:
        url: The router.
        model: Name of the model.
        prompt: What to complete.
        max_tokens: Length of the answer, at most.
        ignore_eos: Whether the answer is of that length, even if the model would end it.
        timeout: How long the answer may take.
        request_id: The header X-Request-Id; None for none.

    Raises:
        httpx.HTTPError: It failed.
    """
    headers = {} if request_id is None else {"X-Request-Id": request_id}
    payload = {"model": model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": ignore_eos}
    body = _post(f"{url}/v1/completions", payload, timeout, headers)
    return _answer(body, body["choices"][0]["text"])


def load_adapter(url: str, name: str, path: str) -> None:
    """Load a LoRA adapter into one engine.

    Raises:
        httpx.HTTPError: It failed.
    """
    response = httpx.post(
        f"{url}/v1/load_lora_adapter", json={"lora_name": name, "lora_path": path}, timeout=120, trust_env=False
    )
    response.raise_for_status()


def _post(
    url: str, payload: dict[str, Any], timeout: float = 120, headers: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    start = time.monotonic()
    response = httpx.post(url, json=payload, headers=dict(headers), timeout=timeout, trust_env=False)
    if response.is_error:
        raise httpx.HTTPStatusError(
            f"{response.status_code}: {response.text}", request=response.request, response=response
        )
    body: dict[str, Any] = response.json()
    return {**body, "seconds": time.monotonic() - start}


def _answer(body: dict[str, Any], text: str) -> Answer:
    usage = body["usage"]
    return Answer(text, usage["prompt_tokens"], usage["completion_tokens"], body["seconds"])
