"""The argument NAME, which may be left out, because a namespace often has one resource, and its completion."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from pdinference.cli.connection import Connection
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import RESOURCE

if TYPE_CHECKING:
    from pdinference.cluster.client import ApiServer, Json

_MOST: Final = "20"
_MOST_COMPLETED: Final = "500"
_COMPLETION_SECONDS: Final = 2.0


def name_argument(command: Callable[..., None]) -> Callable[..., None]:
    """Add the argument [NAME]. The command gets None if it is left out."""
    return click.argument("name", required=False, shell_complete=_complete_name)(command)


def optional_name(last: str, choices: Sequence[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the arguments `[NAME] LAST`. The command gets both, and None as `name` if it is left out.

    Args:
        last: Name of the last argument.
        choices: Its values; empty for any.
    """
    usage = f"[NAME] {'|'.join(choices).join('{}') if choices else last.upper()}"

    def complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        found = [CompletionItem(choice) for choice in choices if choice.startswith(begun)]
        first = not context.params.get("words")
        return [*(_complete_name(context, parameter, begun) if first else ()), *found]

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
        ApiError: The API server returned an error.
        ClickException: The resource does not exist; without a name, there is none, or more than one.
    """
    if name is not None:
        return await _named(api, namespace, name)
    page = await api.get(RESOURCE.path(namespace), limit=_MOST)
    items: list[Json] = page.get("items") or []
    if not items:
        raise click.ClickException(f"The namespace {namespace} has no PDInference. Name another one with -n.")
    if len(items) > 1:
        listed, count = ", ".join(item["metadata"]["name"] for item in items), str(len(items))
        if (page.get("metadata") or {}).get("continue"):
            listed, count = f"{listed}, ...", f"more than {count}"
        raise click.ClickException(
            f"The namespace {namespace} has {count} PDInferences ({listed}). Write the NAME of one."
        )
    return items[0]


async def _named(api: "ApiServer", namespace: str, name: str) -> "Json":
    try:
        return await api.get(RESOURCE.path(namespace, name))
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND or error.unserved:
            raise
    raise click.ClickException(
        f"The namespace {namespace} has no PDInference {name}. `kubectl pdi status -n {namespace}` lists those that "
        "it has."
    )


def _complete_name(context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """The PDInferences of the namespace. None if the cluster does not answer soon: completion must not disturb."""
    from pdinference.cluster.kubeconfig import ConfigurationError  # noqa: PLC0415

    with suppress(ApiError, ConfigurationError, TimeoutError, OSError):
        names = asyncio.run(asyncio.wait_for(_names(context.params), _COMPLETION_SECONDS))
        return [CompletionItem(name) for name in names if name.startswith(begun)]
    return []


async def _names(options: dict[str, Any]) -> list[str]:
    from pdinference.cluster.client import METADATA_ONLY_LIST  # noqa: PLC0415

    async def listed(api: "ApiServer", namespace: str) -> list[str]:
        path = RESOURCE.path(namespace)
        items = (await api.get(path, accept=METADATA_ONLY_LIST, limit=_MOST_COMPLETED)).get("items") or ()
        return [str(item["metadata"]["name"]) for item in items]

    connection = Connection("", options.get("namespace"), options.get("kubeconfig"), options.get("context"))
    return await connection.connected(listed)
