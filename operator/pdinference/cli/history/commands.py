"""The commands `history`, `diff` and `undo`.

Tests: tests/cli/test_history.py
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pdinference.cli.chosen import name_argument
from pdinference.cli.connection import Connect, connection_options
from pdinference.cli.history.changes import ABSENT, changes, diff, in_one_line
from pdinference.cli.history.stored import Entry, NoSuchEntryError, Stored, stored
from pdinference.cli.history.undo import Undo
from pdinference.cli.output import output_option, print_json, say
from pdinference.cli.terminal import terminal
from pdinference.cluster.client import ApiServer

Json = dict[str, Any]

_STORED: Final = "stored"
_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}
_SERVED: Final = {True: "yes", False: "no", None: "?"}
_NOT_IN_HISTORY: Final = (
    "The stored spec is not in the history: it is invalid, the resource is paused, or the operator has not handled it "
    "yet. The condition Progressing says which."
)


@click.command("history")
@name_argument
@output_option()
@connection_options
def history_command(*, name: str | None, output: str, connect: Connect) -> None:
    """List the valid specs of a resource with their changes; * marks the stored spec.

    NAME may be left out if the namespace has one PDInference.
    """
    found = _stored(connect, name)
    if output == "json":
        print_json({"revisions": _as_json(found)})
    else:
        terminal().print(_table(found))
    if found.current is None:
        say(_NOT_IN_HISTORY, err=True)


@click.command("diff")
@name_argument
@click.option(
    "--revision", type=int, help="Compare from this revision.  [default: the last one before the stored spec]"
)
@click.option("--with", "other", type=int, help="Compare to this revision.  [default: the stored spec]")
@output_option()
@connection_options
def diff_command(*, name: str | None, revision: int | None, other: int | None, output: str, connect: Connect) -> None:
    """Print the changes of the last edit, or between two revisions, as a YAML diff.

    NAME may be left out if the namespace has one PDInference.
    """
    found = _stored(connect, name)
    before, name_before = _named(_chosen(found, revision))
    after, name_after = (found.spec, _STORED) if other is None else _named(_chosen(found, other))
    if output == "json":
        print_json({"from": name_before, "to": name_after, "changes": _changes_as_json(before, after)})
    else:
        _print_diff(before, name_before, after, name_after)


@click.command("undo")
@name_argument
@click.option(
    "--to-revision", type=int, help="Revision to restore.  [default: the last other one that served requests]"
)
@click.option("--dry-run", is_flag=True, help="Print the changes, and write nothing.")
@output_option()
@connection_options
def undo_command(*, name: str | None, to_revision: int | None, dry_run: bool, output: str, connect: Connect) -> None:
    """Restore the last other spec that served, with your own credentials. Prints the changes first.

    A revision that never served requests is restored only by its number. A second undo returns to the spec before the
    first one, if that served. The number of decode pods stays, because kubectl scale and autoscalers write this field.
    NAME may be left out if the namespace has one PDInference.
    """

    async def work(api: ApiServer, namespace: str) -> None:
        undo = await Undo.planned(api, namespace, name, to_revision)
        writes = undo.changes and not dry_run
        if output == "text":
            _print_skipped(undo.skipped)
            _print_undo(undo)
        for warning in undo.warnings:
            say(f"Warning: {warning}", err=True)
        if writes:
            await undo.write(api)
        if output == "json":
            print_json(_undo_as_json(undo, written=writes))
        elif writes:
            say(f"{undo.resource} has the spec of revision {undo.target.number} again.")

    connect(name or "").do(work)


def _stored(connect: Connect, name: str | None) -> Stored:
    return connect(name or "").do(lambda api, namespace: stored(api, namespace, name))


def _print_skipped(numbers: Sequence[int]) -> None:
    for number in numbers:
        say(f"Revision {number} is left out: it has never served requests. Store it again with --to-revision {number}.")


def _print_undo(undo: Undo) -> None:
    if undo.changes:
        _print_diff(undo.before, _STORED, undo.after, f"revision {undo.target.number}")
    else:
        rest = " as far as the installed CRD has its fields" if undo.altered else ""
        say(f"{undo.resource} has the spec of revision {undo.target.number} already{rest}. Nothing was written.")


def _undo_as_json(undo: Undo, *, written: bool) -> Json:
    changed = _changes_as_json(undo.before, undo.after)
    return {
        "resource": undo.resource,
        "revision": undo.target.number,
        "served": undo.target.served,
        "skipped": list(undo.skipped),
        "altered": list(undo.altered),
        "written": written,
        "changes": changed,
    }


def _chosen(found: Stored, number: int | None) -> Entry:
    try:
        return found.last if number is None else found.entry(number)
    except NoSuchEntryError as error:
        raise click.ClickException(str(error)) from None


def _named(entry: Entry) -> tuple[Json, str]:
    return entry.spec, f"revision {entry.number}"


def _table(found: Stored) -> RenderableType:
    table = Table(box=None, pad_edge=False)
    table.add_column("REVISION", justify="right")
    table.add_column("STORED", no_wrap=True)
    table.add_column("SERVED", no_wrap=True)
    table.add_column("CHANGES", overflow="fold")
    for entry, changed in _changes(found.entries):
        mark = "*" if entry is found.current else " "
        table.add_row(f"{mark} {entry.number}", Text(entry.since), _SERVED[entry.served], Text(changed))
    return table


def _as_json(found: Stored) -> list[Json]:
    """The valid specs, oldest first."""
    return [
        {
            "revision": entry.number,
            "stored": entry.since,
            "current": entry is found.current,
            "served": entry.served,
            "changes": changed,
            "spec": entry.spec,
        }
        for entry, changed in _changes(found.entries)
    ]


def _changes_as_json(before: Json, after: Json) -> list[Json]:
    """The fields that differ. A value that is absent has no member."""
    return [
        {"path": one.path}
        | ({} if one.before is ABSENT else {"before": one.before})
        | ({} if one.after is ABSENT else {"after": one.after})
        for one in changes(before, after)
    ]


def _changes(entries: Iterable[Entry]) -> Iterable[tuple[Entry, str]]:
    """The entries with their changes, oldest first."""
    before: Json | None = None
    for entry in sorted(entries, key=lambda entry: entry.number):
        yield entry, "(the oldest that is kept)" if before is None else in_one_line(before, entry.spec)
        before = entry.spec


def _print_diff(before: Json, name_before: str, after: Json, name_after: str) -> None:
    for line in diff(before, after, name_before, name_after):
        click.secho(line, fg=_COLOURS.get(line[:1]))
