"""Options for a resource in a cluster, and the connection to it."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from pdinference.cluster.client import ApiServer

ResultT = TypeVar("ResultT")
_USER_AGENT = "pdinference"


class Live:
    """A resource in a cluster."""

    def __init__(self, name: str, namespace: str | None, kubeconfig: Path | None, context: str | None) -> None:
        self.name = name
        self.namespace = namespace
        self._kubeconfig = kubeconfig
        self._context = context

    def do(self, work: "Callable[[ApiServer, str], Awaitable[ResultT]]") -> ResultT:
        """Run work with a connection and the namespace.

        Raises:
            ClickException: The cluster cannot be reached, or returned an error.
        """
        from pdinference.cli.history.stored import NoSuchEntryError, UnreadableSpecError  # noqa: PLC0415 - as below
        from pdinference.cluster.client import ConfigurationError  # noqa: PLC0415 - a second to import
        from pdinference.cluster.errors import ApiError  # noqa: PLC0415

        try:
            return asyncio.run(self._with_connection(work))
        except ApiError as error:
            raise click.ClickException(error.message) from None
        except (ConfigurationError, NoSuchEntryError, UnreadableSpecError) as error:
            raise click.ClickException(str(error)) from None

    async def _with_connection(self, work: "Callable[[ApiServer, str], Awaitable[ResultT]]") -> ResultT:
        from pdinference.cluster.client import ApiServer, default_namespace, load_configuration  # noqa: PLC0415

        configuration = await load_configuration(self._kubeconfig, self._context)
        api = ApiServer(configuration, kubeconfig=self._kubeconfig, context=self._context, user_agent=_USER_AGENT)
        try:
            return await work(api, self.namespace or default_namespace(self._kubeconfig, self._context))
        finally:
            await api.close()


def live_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the cluster. The command gets, as `live`, a function from a name to the resource."""

    @click.option("-n", "--namespace", help="Namespace of the resource.  [default: the namespace of the context]")
    @click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="Kubeconfig file.  [default: that of kubectl]",
    )
    @click.option("--context", help="Context in the kubeconfig.  [default: the current context]")
    @wraps(command)
    def with_live(*, namespace: str | None, kubeconfig: Path | None, context: str | None, **options: Any) -> None:
        command(live=lambda name: Live(name, namespace, kubeconfig, context), **options)

    return with_live


def live_resource(command: Callable[..., None]) -> Callable[..., None]:
    """Add the argument NAME and the options for the cluster. The command gets the resource as `live`."""

    @click.argument("name")
    @live_options
    @wraps(command)
    def with_resource(*, name: str, live: Callable[[str], Live], **options: Any) -> None:
        command(live=live(name), **options)

    return with_resource
