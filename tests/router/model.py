"""A model behind vLLM's API whose stream can break off."""

import json
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from tests.router.engines import events

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
LENGTH = 12


class Model:
    """Plays vLLM's stream of a model whose next token depends on all tokens before it.

    Args:
        dies_after: Bytes of the stream after which it dies; None never does.
    """

    def __init__(self, dies_after: int | None = None) -> None:
        self.dies_after = dies_after

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        response = await events(request)
        data = self.stream(request.path, json.loads(await request.read()))
        if self.dies_after is not None and self.dies_after < len(data):
            await response.write(data[: self.dies_after])
            assert request.transport is not None
            request.transport.close()
            return response
        await response.write(data)
        return response

    @staticmethod
    def stream(path: str, body: Mapping[str, Any]) -> bytes:
        """All events."""
        prompt = body.get("prompt") or [ord(letter) for message in body["messages"] for letter in message["content"]]
        ids = [ord(letter) for letter in prompt] if isinstance(prompt, str) else list(prompt)
        head = {"id": f"cmpl-{len(ids)}", "object": path, "created": len(ids), "model": body["model"]}
        prompt_ids = {"prompt_token_ids": list(ids)} if body.get("return_token_ids") else {}
        found = []
        if path == CHAT:
            choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
            found.append({**head, "choices": [choice], **prompt_ids})
            prompt_ids = {}
        count = body["max_tokens"] if body.get("max_tokens") is not None else LENGTH
        for number in range(count):
            ids.append(97 + sum(place * token for place, token in enumerate(ids)) % 26)
            text = {"delta": {"content": chr(ids[-1])}} if path == CHAT else {"text": chr(ids[-1])}
            token_ids = {"token_ids": ids[-1:]} if body.get("return_token_ids") else {}
            finish = "length" if number == count - 1 else None
            choice = {"index": 0, **text, "finish_reason": finish, **token_ids, **prompt_ids}
            found.append({**head, "choices": [choice]})
            prompt_ids = {}
        if (body.get("stream_options") or {}).get("include_usage"):
            usage = {"prompt_tokens": len(ids) - count, "completion_tokens": count, "total_tokens": len(ids)}
            found.append({**head, "choices": [], "usage": usage})
        return b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in found) + b"data: [DONE]\n\n"


def asking(path: str, **more: Any) -> dict[str, Any]:
    prompt = {"messages": [{"role": "user", "content": "abc"}]} if path == CHAT else {"prompt": "abc"}
    return {"model": "m", "max_tokens": LENGTH, "temperature": 0, "stream": True, **prompt, **more}


def text(data: bytes) -> str:
    """The generated text of a complete stream."""
    lines = data.decode().split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["length"]
    assert len({(chunk["id"], chunk["object"], chunk["created"]) for chunk in chunks}) == 1
    return "".join(choice["delta"]["content"] if "delta" in choice else choice["text"] for choice in choices)
