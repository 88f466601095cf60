"""The command `pdinference top`.

Tests: tests/cli/test_top.py
"""

import click
import msgspec
from rich.console import Console, RenderableType

from pdinference.cli.chosen import chosen, name_argument
from pdinference.cli.connection import Connect, connection_options
from pdinference.cli.output import output_option, print_json
from pdinference.cli.terminal import terminal
from pdinference.cli.top.reading import read_engines
from pdinference.cli.top.text import Remembered, remember, view
from pdinference.cli.top.usage import EngineUse
from pdinference.cli.watching import keep_live
from pdinference.cluster.client import ApiServer


@click.command("top")
@name_argument
@click.option("--once", is_flag=True, help="Print the present state, and end; so it is off a terminal.")
@output_option()
@connection_options
def top_command(*, name: str | None, once: bool, output: str, connect: Connect) -> None:
    """Show memory and load of each engine of P and D, and its KV cache over time, until Ctrl-C.

    Weights and sizes of KV caches are those of the memory plan in the status. The rest is from vLLM's metrics, read
    through a port-forward every 2 seconds. NAME may be left out if the namespace has one PDInference.
    """

    async def work(api: ApiServer, namespace: str) -> None:
        if once or output == "json" or not terminal().is_terminal:
            await _print(api, namespace, name, output)
        else:
            await _keep_live(api, namespace, name)

    try:
        connect(name or "").do(work)
    except KeyboardInterrupt:
        if once:
            raise


async def _look(api: ApiServer, namespace: str, name: str | None) -> list[EngineUse]:
    resource = await chosen(api, namespace, name)
    engines = await read_engines(api, namespace, resource)
    if not engines:
        known = resource["metadata"]["name"]
        raise click.ClickException(f"{known} has no pods of P or D. `kubectl pdi status {known}` says why.")
    return engines


async def _print(api: ApiServer, namespace: str, name: str | None, output: str) -> None:
    engines = await _look(api, namespace, name)
    if output == "json":
        print_json({"engines": msgspec.to_builtins(engines)})
    else:
        console = terminal()
        console.print(view(console, engines, {}))


async def _keep_live(api: ApiServer, namespace: str, name: str | None) -> None:
    history: Remembered = {}

    def remembered(engines: list[EngineUse], console: Console) -> RenderableType:
        remember(history, engines)
        return view(console, engines, history)

    await keep_live(lambda: _look(api, namespace, name), remembered)
