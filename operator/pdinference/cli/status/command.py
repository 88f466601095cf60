"""The command `pdinference status`.

Tests: tests/cli/test_status.py, tests/cli/test_status_startup.py
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import click
from rich.console import Console, RenderableType
from rich.text import Text

from pdinference.cli.chosen import name_argument
from pdinference.cli.connection import Connect, connection_options
from pdinference.cli.output import output_option, print_json
from pdinference.cli.status.overview import Overview
from pdinference.cli.status.reading import read_all, read_one
from pdinference.cli.status.startup_reading import read_starts
from pdinference.cli.status.startup_text import startup_json, startup_text
from pdinference.cli.status.text import table, tree
from pdinference.cli.terminal import terminal
from pdinference.cli.watching import keep_live, looks
from pdinference.cluster.client import ApiServer


class Shown:
    """What is printed at one moment: one resource, or all of a namespace."""

    def __init__(self, views: list[Overview], namespace: str, *, one: bool) -> None:
        self._views = views
        self._namespace = namespace
        self._one = one

    def as_json(self) -> Any:
        """For programs."""
        return self._views[0].as_json() if self._one else {"items": [view.as_json() for view in self._views]}

    def as_text(self, console: Console) -> RenderableType:
        """For people."""
        if self._one:
            return tree(self._views[0])
        if not self._views:
            return Text(f"There are no PDInferences in the namespace {self._namespace}.")
        return table(self._views, console)


Read = Callable[[ApiServer, str], Awaitable[Shown]]


@click.command("status")
@name_argument
@output_option()
@click.option("-w", "--watch", is_flag=True, help="Look again every 2 seconds, until Ctrl-C.")
@click.option("--startup", is_flag=True, help="Show how long the pods of NAME took to start, phase by phase.")
@connection_options
def status_command(*, name: str | None, output: str, watch: bool, startup: bool, connect: Connect) -> None:
    """Show a PDInference with its pods, loads, transfer and objectives, and what is not as it should be.

    Without NAME, one line for each PDInference of the namespace. Messages say what to do. Nothing is written.

    With --watch a terminal shows the present state. Otherwise, each changed state is printed: with -o json as one line.
    """
    if startup and (name is None or watch):
        raise click.UsageError("--startup needs NAME, and does not go with --watch.")
    chosen = connect(name or "")
    if startup and name is not None:
        chosen.do(_starts(name, output))
        return
    try:
        chosen.do(_watching(name, output) if watch else _once(name, output))
    except KeyboardInterrupt:
        if not watch:
            raise


def _reading(name: str | None) -> Read:
    async def read(api: ApiServer, namespace: str) -> Shown:
        if name is not None:
            return Shown([await read_one(api, namespace, name)], namespace, one=True)
        return Shown(await read_all(api, namespace), namespace, one=False)

    return read


def _once(name: str | None, output: str) -> Callable[[ApiServer, str], Awaitable[None]]:
    read = _reading(name)

    async def work(api: ApiServer, namespace: str) -> None:
        shown = await read(api, namespace)
        if output == "json":
            print_json(shown.as_json())
        else:
            _print(shown)

    return work


def _starts(name: str, output: str) -> Callable[[ApiServer, str], Awaitable[None]]:
    async def work(api: ApiServer, namespace: str) -> None:
        read = await read_starts(api, namespace, name)
        if output == "json":
            print_json(startup_json(read))
        else:
            console = terminal()
            console.print(startup_text(read, console))

    return work


def _watching(name: str | None, output: str) -> Callable[[ApiServer, str], Awaitable[None]]:
    read = _reading(name)

    async def work(api: ApiServer, namespace: str) -> None:
        console = terminal()
        if output == "json" or not console.is_terminal:
            await _print_changes(lambda: read(api, namespace), output)
        else:
            await keep_live(lambda: read(api, namespace), Shown.as_text)

    return work


async def _print_changes(read: Callable[[], Awaitable[Shown]], output: str) -> None:
    before: Any = None
    async for shown, lost in looks(read):
        if lost:
            click.echo(lost, err=True)
        elif shown is not None and (now := shown.as_json()) != before:
            if output == "json":
                click.echo(json.dumps(now))
            else:
                if before is not None:
                    click.echo()
                _print(shown)
            before = now


def _print(shown: Shown) -> None:
    console = terminal()
    console.print(shown.as_text(console))
