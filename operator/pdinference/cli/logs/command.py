"""The command `pdinference logs`.

Tests: tests/cli/test_logs.py
"""

from collections.abc import Sequence
from itertools import cycle
from typing import Any, Final

import click

from pdinference.api.names import SERVING_ROLES, Role
from pdinference.api.v1alpha1.durations import milliseconds
from pdinference.cli.chosen import chosen, optional_name
from pdinference.cli.connection import Connect, connection_options
from pdinference.cli.logs.reading import LogReader
from pdinference.cli.logs.sources import LogSource, sources
from pdinference.cluster.client import ApiServer, Json

_COLOURS: Final = ("cyan", "green", "yellow", "magenta", "blue", "red")


def _since(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    if not (length := milliseconds(value)):
        raise click.BadParameter(f"{value!r} is no duration, such as 10m or 30s")
    return str(max(1, length // 1000))


@click.command("logs")
@optional_name("role", [str(role) for role in SERVING_ROLES])
@click.option("-f", "--follow", is_flag=True, help="Print lines as they are written, also of new pods, until Ctrl-C.")
@click.option("--since", callback=_since, help="Only lines of this last time, such as 10m.  [default: all]")
@click.option("--tail", type=click.IntRange(0), help="Only this many last lines of each container.  [default: all]")
@click.option("-p", "--previous", is_flag=True, help="Of the run of each container before the last restart.")
@click.option("-c", "--container", default="", help="Another container of these pods.  [default: that of the role]")
@click.option("--revision", help="Revision of the pods.  [default: the one that the spec describes]")
@connection_options
def logs_command(
    *, name: str | None, role: str, follow: bool, revision: str | None, container: str, connect: Connect,
    **query: Any,
) -> None:  # fmt: skip
    """Print the logs of all pods of a role, each line with its pod.

    NAME may be left out if the namespace has one PDInference. parameter is P, decode is D.
    """
    chosen_query = _query(**query)

    async def work(api: ApiServer, namespace: str) -> None:
        resource = await chosen(api, namespace, name)
        which = revision or _current(resource)
        reader = LogReader(api, namespace, chosen_query, _Printer(), _warn)

        async def look() -> Sequence[LogSource]:
            pods = await reader.pods(resource["metadata"]["name"])
            return sources(pods, Role(role), which, container)

        if follow:
            await reader.follow(look)
            return
        found = await look()
        if not found:
            raise click.ClickException(f"There is no pod of {role} of revision {which}.{_other(resource, which)}")
        await reader.print(found)

    try:
        connect(name or "").do(work)
    except KeyboardInterrupt:
        if not follow:
            raise


def _query(since: str | None, tail: int | None, *, previous: bool) -> dict[str, str]:
    found = {"sinceSeconds": since, "tailLines": tail, "previous": "true" if previous else None}
    return {name: str(value) for name, value in found.items() if value is not None}


def _current(resource: Json) -> str:
    revision = (resource.get("status") or {}).get("revision")
    if not revision:
        name = resource["metadata"]["name"]
        raise click.ClickException(f"{name} has no pods yet. `kubectl pdi status {name}` says what it waits for.")
    return str(revision)


def _other(resource: Json, revision: str) -> str:
    serving = (resource.get("status") or {}).get("servingRevision")
    if serving and serving != revision:
        return f" Revision {serving} serves: add --revision {serving}."
    return f" `kubectl pdi status {resource['metadata']['name']}` says why."


class _Printer:
    """Prints each line after the name of its pod: on a terminal in a colour for each pod, elsewhere without colours."""

    def __init__(self) -> None:
        self._colours = cycle(_COLOURS)
        self._prefixes: dict[str, str] = {}

    def __call__(self, source: LogSource, line: bytes) -> None:
        if source.pod not in self._prefixes:
            self._prefixes[source.pod] = click.style(f"[{source.pod}]", fg=next(self._colours))
        click.echo(f"{self._prefixes[source.pod]} {line.decode(errors='replace')}")


def _warn(message: str) -> None:
    click.echo(message, err=True)
