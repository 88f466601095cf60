"""The command `pdinference chat`.

Tests: tests/cli/test_chat.py
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import click
import msgspec

from pdinference.cli.chosen import optional_name
from pdinference.cli.connection import Connect, connection_options
from pdinference.cli.output import output_option, say, terminal_width
from pdinference.cli.requests.router import RouterForward, connected
from pdinference.cli.requests.seconds import time_text
from pdinference.cli.requests.stages import STAGES, Stages
from pdinference.cli.requests.stream import RequestError, StreamedAnswer
from pdinference.cli.requests.why import why_lines
from pdinference.cli.requests.wrapping import WordWrap
from pdinference.cluster.client import ApiServer

Json = dict[str, Any]

_TALK: Final = "-"
_PATH: Final = "/v1/chat/completions"
_PLAIN: Final = ("  way: this request had no other one (spec.router.disaggregation)",)
_BEFORE_STAGE: Final = 23
"""Columns of a line before the description of a stage, beside those before the line itself."""


def router_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of requests to a router."""
    key = click.option("--api-key", envvar="PDINFERENCE_API_KEY", help="Key of the router, if it wants one.")
    model = click.option("--model", help="Model or LoRA adapter.  [default: the first one that the router names]")
    return key(model(command))


@click.command("chat")
@optional_name("prompt")
@click.option("--system", help="System prompt.")
@click.option("--max-tokens", type=click.IntRange(1, 100_000), default=1024, show_default=True)
@click.option("--why", is_flag=True, help="Say why the request went through P and D, or to one of them alone.")
@output_option()
@router_options
@connection_options
def chat_command(
    *, name: str | None, prompt: str, system: str | None, max_tokens: int, why: bool, output: str, api_key: str | None,
    model: str | None, connect: Connect,
) -> None:  # fmt: skip
    """Ask a model, and see how long each stage took.

    With - as PROMPT, each line of standard input is a turn of one conversation. NAME may be left out if the namespace
    has one PDInference.

    The request goes through a port-forward to a router pod. The stages are read from that pod's log.
    """

    async def work(api: ApiServer, namespace: str) -> None:
        async with connected(api, namespace, name, api_key=api_key, model=model) as router:
            messages: list[Json] = [{"role": "system", "content": system}] if system else []
            async for turn in turns(prompt):
                messages.append({"role": "user", "content": turn})
                try:
                    answer = await _turn(router, messages, max_tokens, output, why=why)
                except RequestError as error:
                    raise click.ClickException(str(error)) from None
                messages.append({"role": "assistant", "content": answer.text})

    connect(name or "").do(work)


async def turns(prompt: str) -> AsyncIterator[str]:
    """The prompt; or, for -, the lines of standard input, with a prompt on a terminal."""
    if prompt != _TALK:
        yield prompt
        return
    asks = sys.stdin.isatty()
    while True:
        if asks:
            click.echo("> ", nl=False)
            await _readable(sys.stdin.fileno())
        if not (line := sys.stdin.readline()):
            click.echo(nl=asks)
            return
        if turn := line.strip():
            yield turn


async def _readable(descriptor: int) -> None:
    """Wait for a line of a terminal. Meanwhile connections stay alive, and Ctrl-C has effect."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


async def _turn(
    router: RouterForward, messages: list[Json], max_tokens: int, output: str, *, why: bool
) -> StreamedAnswer:
    shown = output == "text"
    body = {"messages": messages, "max_tokens": max_tokens}
    text = WordWrap(terminal_width() if sys.stdout.isatty() else None)
    try:
        answer = await router.ask(_PATH, body, (lambda part: _write(text.add(part))) if shown else (lambda _: None))
    finally:
        _write(text.end())
    stages = await router.stages(answer)
    if not shown:
        click.echo(json.dumps(_as_json(router, answer, stages)))
        return answer
    click.echo("\n")
    for line in timings(answer, stages, why=why):
        say(line, indent=_BEFORE_STAGE if line.startswith(" ") else 0, dim=True)
    return answer


def _write(text: str) -> None:
    if text:
        click.echo(text, nl=False)


def timings(answer: StreamedAnswer, stages: Stages | str, *, why: bool) -> list[str]:
    """The times of an answer: as the client saw it, and by stage; and why it went its way."""
    between = f", then {time_text(answer.between)} per token" if answer.between is not None else ""
    tokens = f"{answer.prompt_tokens:,} prompt tokens, {answer.answer_tokens:,} answer tokens"
    lines = [f"{tokens}: first token after {time_text(answer.first)}{between}, {time_text(answer.total)} in all"]
    if isinstance(stages, str):
        return [*lines, f"The stages are not known. {stages}"]
    pods = {"prefill": stages.prefill} | dict.fromkeys(("first_token", "alone", "tokens"), stages.decode)
    for stage, what in STAGES.items():
        if stage in stages.seconds:
            pod = f" ({pods[stage]})" if pods.get(stage) else ""
            lines.append(f"  {stage:<11} {time_text(stages.seconds[stage]):>9}  {what}{pod}")
    if stages.fallback:
        lines.append(f"  D computed the prompt: {stages.fallback}")
    if why:
        lines += _PLAIN if stages.why is None else why_lines(stages.why)
    return lines


def _as_json(router: RouterForward, answer: StreamedAnswer, stages: Stages | str) -> Json:
    known = not isinstance(stages, str)
    return {
        "namespace": router.namespace,
        "name": router.name,
        "model": router.model,
        "routerPod": router.pod,
        "answer": {**msgspec.to_builtins(answer), "between": answer.between},
        "stages": msgspec.to_builtins(stages) if known else None,
        "stagesUnknown": None if known else stages,
    }
