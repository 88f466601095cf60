"""The command `pdinference status`."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import click

from pdinference.cli.chosen import name_argument
from pdinference.cli.history.live import Live, live_options
from pdinference.cli.output import output_option, print_json

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from pdinference.cli.status.overview import Overview
    from pdinference.cluster.client import ApiServer

_SECONDS: Final = 2.0
"""Between two looks."""

Read = Callable[["ApiServer", str], Awaitable["Shown"]]


class Shown:
    """What is printed at one moment: one resource, or all of a namespace."""

    def __init__(self, views: "list[Overview]", namespace: str, *, one: bool) -> None:
        self._views = views
        self._namespace = namespace
        self._one = one

    def as_json(self) -> Any:
        """For programs."""
        return self._views[0].as_json() if self._one else {"items": [view.as_json() for view in self._views]}

    def as_text(self, console: "Console") -> "RenderableType":
        """For people."""
        from rich.text import Text  # noqa: PLC0415 - the import of Rich is slow

        from pdinference.cli.status.text import table, tree  # noqa: PLC0415

        if self._one:
            return tree(self._views[0])
        if not self._views:
            return Text(f"There are no PDInferences in the namespace {self._namespace}.")
        return table(self._views, console)


@click.command("status")
@name_argument
@output_option()
@click.option("-w", "--watch", is_flag=True, help="Look again every 2 seconds, until Ctrl-C.")
@live_options
def status_command(*, name: str | None, output: str, watch: bool, live: Callable[[str], Live]) -> None:
    """Show a PDInference with its pods, loads, transfer and objectives, and what is not as it should be.

    Without NAME, one line for each PDInference of the namespace. Messages say what to do. Nothing is written.

    With --watch a terminal shows the present state. Otherwise, each changed state is printed: with -o json as one line.
    """
    chosen = live(name or "")
    try:
        chosen.do(_watching(name, output) if watch else _once(name, output))
    except KeyboardInterrupt:
        if not watch:
            raise


def _reading(name: str | None) -> Read:
    async def read(api: "ApiServer", namespace: str) -> Shown:
        from pdinference.cli.status.reading import read_all, read_one  # noqa: PLC0415 - the client takes a second

        if name is not None:
            return Shown([await read_one(api, namespace, name)], namespace, one=True)
        return Shown(await read_all(api, namespace), namespace, one=False)

    return read


def _once(name: str | None, output: str) -> Callable[["ApiServer", str], Awaitable[None]]:
    read = _reading(name)

    async def work(api: "ApiServer", namespace: str) -> None:
        shown = await read(api, namespace)
        if output == "json":
            print_json(shown.as_json())
        else:
            _print(shown)

    return work


def _watching(name: str | None, output: str) -> Callable[["ApiServer", str], Awaitable[None]]:
    read = _reading(name)

    async def work(api: "ApiServer", namespace: str) -> None:
        from pdinference.cli.plan.table import plan_console  # noqa: PLC0415

        console = plan_console()
        if output == "json" or not console.is_terminal:
            await _print_changes(lambda: read(api, namespace), output)
        else:
            await _keep_live(lambda: read(api, namespace))

    return work


async def _print_changes(read: Callable[[], Awaitable[Shown]], output: str) -> None:
    before: Any = None
    while True:
        shown, lost = await _looked(read)
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
        await asyncio.sleep(_SECONDS)


async def _keep_live(read: Callable[[], Awaitable[Shown]]) -> None:
    from rich.console import Group  # noqa: PLC0415
    from rich.live import Live as Screen  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from pdinference.cli.plan.table import plan_console  # noqa: PLC0415

    last: RenderableType = Text("")
    with Screen(console=plan_console(), auto_refresh=False, vertical_overflow="crop") as screen:
        while True:
            shown, lost = await _looked(read)
            last = last if shown is None else shown.as_text(screen.console)
            screen.update(Group(last, Text(f"\n{lost}", style="yellow")) if lost else last, refresh=True)
            await asyncio.sleep(_SECONDS)


def _print(shown: Shown) -> None:
    from pdinference.cli.plan.table import plan_console  # noqa: PLC0415 - the import of Rich is slow

    console = plan_console()
    console.print(shown.as_text(console))


async def _looked(read: Callable[[], Awaitable[Shown]]) -> tuple[Shown | None, str]:
    """The present state; or, if the API server cannot answer now, why."""
    from pdinference.cluster.errors import ApiError  # noqa: PLC0415

    try:
        return await read(), ""
    except ApiError as error:
        if not error.transient:
            raise
        return None, f"{error.message}. Trying again every {_SECONDS:g} s."
