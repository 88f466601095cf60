"""The commands `history`, `diff` and `undo`."""

import json
from typing import TYPE_CHECKING, Any, Final

import click

from pdinference.cli.history.live import Live, live_resource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from pdinference.cli.history.stored import Entry, Stored
    from pdinference.cluster.client import ApiServer

Json = dict[str, Any]

_STORED: Final = "stored"
_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}
_NOT_IN_HISTORY: Final = (
    "The stored spec is not in the history: it is invalid, or the operator has not handled it yet. "
    "The condition Progressing says which."
)
_CONFLICT: Final = 409


@click.command("history")
@live_resource
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def history_command(live: Live, output: str) -> None:
    """List the valid specs of a resource with their changes; * marks the stored spec."""
    from pdinference.cli.history.stored import stored  # noqa: PLC0415 - the client takes a second to import
    from pdinference.cli.plan.table import plan_console  # noqa: PLC0415

    found = live.do(lambda api, namespace: stored(api, namespace, live.name))
    if output == "json":
        click.echo(json.dumps({"revisions": _as_json(found)}, indent=2))
    else:
        plan_console().print(_table(found))
    if found.current is None:
        click.echo(_NOT_IN_HISTORY, err=True)


@click.command("diff")
@live_resource
@click.option(
    "--revision", type=int, help="Compare from this revision.  [default: the last one before the stored spec]"
)
@click.option("--with", "other", type=int, help="Compare to this revision.  [default: the stored spec]")
def diff_command(live: Live, revision: int | None, other: int | None) -> None:
    """Print the changes of the last edit, or between two revisions, as a YAML diff."""
    from pdinference.cli.history.stored import stored  # noqa: PLC0415

    found = live.do(lambda api, namespace: stored(api, namespace, live.name))
    before = _chosen(found, revision)
    after = (found.spec, _STORED) if other is None else _named(_chosen(found, other))
    _print_diff(*_named(before), *after)


@click.command("undo")
@live_resource
@click.option("--to-revision", type=int, help="Revision to restore.  [default: the last one before the stored spec]")
@click.option("--dry-run", is_flag=True, help="Print the changes, and write nothing.")
def undo_command(live: Live, to_revision: int | None, dry_run: bool) -> None:
    """Restore an earlier valid spec with your own credentials. Prints the changes first.

    The number of decode pods stays, because kubectl scale and autoscalers write this field.
    """
    from pdinference.cli.history.undo import Undo  # noqa: PLC0415
    from pdinference.cluster.errors import ApiError  # noqa: PLC0415

    async def work(api: "ApiServer", namespace: str) -> None:
        undo = await Undo.planned(api, namespace, live.name, to_revision)
        if not undo.changes:
            click.echo(f"{live.name} has the spec of revision {undo.target.number} already. Nothing was written.")
            return
        _print_diff(undo.before, _STORED, undo.after, f"revision {undo.target.number}")
        for warning in undo.warnings:
            click.echo(f"Warning: {warning}", err=True)
        if dry_run:
            return
        try:
            await undo.write(api)
        except ApiError as error:
            if error.status != _CONFLICT:
                raise
            raise click.ClickException(f"{live.name} was changed meanwhile. Nothing was written; try again.") from None
        click.echo(f"{live.name} has the spec of revision {undo.target.number} again.")

    live.do(work)


def _chosen(found: "Stored", number: int | None) -> "Entry":
    from pdinference.cli.history.stored import NoSuchEntryError  # noqa: PLC0415

    try:
        return found.last if number is None else found.entry(number)
    except NoSuchEntryError as error:
        raise click.ClickException(str(error)) from None


def _named(entry: "Entry") -> tuple[Json, str]:
    return entry.spec, f"revision {entry.number}"


def _table(found: "Stored") -> "RenderableType":
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False)
    table.add_column("REVISION", justify="right")
    table.add_column("STORED", no_wrap=True)
    table.add_column("CHANGES", overflow="fold")
    for entry, changed in _changes(found.entries):
        mark = "*" if entry is found.current else " "
        table.add_row(f"{mark} {entry.number}", Text(entry.since), Text(changed))
    return table


def _as_json(found: "Stored") -> list[Json]:
    """The valid specs, oldest first."""
    return [
        {
            "revision": entry.number,
            "stored": entry.since,
            "current": entry is found.current,
            "changes": changed,
            "spec": entry.spec,
        }
        for entry, changed in _changes(found.entries)
    ]


def _changes(entries: "Iterable[Entry]") -> "Iterable[tuple[Entry, str]]":
    """The entries with their changes, oldest first."""
    from pdinference.cli.history.changes import in_one_line  # noqa: PLC0415

    before: Json | None = None
    for entry in sorted(entries, key=lambda entry: entry.number):
        yield entry, "(the oldest that is kept)" if before is None else in_one_line(before, entry.spec)
        before = entry.spec


def _print_diff(before: Json, name_before: str, after: Json, name_after: str) -> None:
    from pdinference.cli.history.changes import diff  # noqa: PLC0415

    for line in diff(before, after, name_before, name_after):
        click.secho(line, fg=_COLOURS.get(line[:1]))
