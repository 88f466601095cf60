"""Arguments of commands for which NAME may be left out, because the namespace often has one resource."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from pdinference.cluster.client import ApiServer, Json

_MOST: Final = "20"


def optional_name(last: str, choices: Sequence[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the arguments `[NAME] LAST`. The command gets both, and None as `name` if it is left out.

    Args:
        last: Name of the last argument.
        choices: Its values; empty for any.
    """
    usage = f"[NAME] {'|'.join(choices).join('{}') if choices else last.upper()}"

    def complete(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        return [CompletionItem(choice) for choice in choices if choice.startswith(begun)]

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @click.argument("words", metavar=usage, nargs=-1, shell_complete=complete)
        @wraps(command)
        def with_words(*, words: tuple[str, ...], **options: Any) -> None:
            if not 1 <= len(words) <= 2:
                raise click.UsageError(f"Write {usage}.")
            if choices and words[-1] not in choices:
                raise click.UsageError(f"{words[-1]!r} is not one of {', '.join(choices)}.")
            command(name=words[0] if len(words) == 2 else None, **{last: words[-1]}, **options)

        return with_words

    return add


async def chosen(api: "ApiServer", namespace: str, name: str | None) -> "Json":
    """The resource of a name; without one, the only one of the namespace.

    Raises:
        ApiError: The API server returned an error, or the resource does not exist.
        ClickException: There is none, or more than one.
    """
    from pdinference.cluster.kinds import RESOURCE  # noqa: PLC0415 - the client takes a second to import

    if name is not None:
        return await api.get(RESOURCE.path(namespace, name))
    items: list[Json] = (await api.get(RESOURCE.path(namespace), limit=_MOST)).get("items") or []
    if len(items) != 1:
        listed = ", ".join(item["metadata"]["name"] for item in items)
        found = f"{len(items)} PDInferences ({listed}). Write the NAME of one" if items else "no PDInference"
        raise click.ClickException(f"The namespace {namespace} has {found}.")
    return items[0]
