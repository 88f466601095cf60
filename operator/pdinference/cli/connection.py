"""The connection of a command to the cluster of a resource, and the options for it.

Tests: tests/cli/test_kubectl.py, tests/cli/test_errors.py
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from pdinference.cluster.errors import ApiError

if TYPE_CHECKING:
    from pdinference.cluster.client import ApiServer

ResultT = TypeVar("ResultT")
_USER_AGENT = "pdinference"
_NO_KIND: Final = (
    "This cluster has no PDInferences: the operator's CRDs are not installed. Install the operator (README.md), or "
    "name another cluster with --context."
)


class CommandError(Exception):
    """Ends a command; the message says why."""


class Connection:
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
        from pdinference.cluster.kubeconfig import ConfigurationError  # noqa: PLC0415

        try:
            return asyncio.run(self.connected(work))
        except ApiError as error:
            raise click.ClickException(_with_remedy(error)) from None
        except (ConfigurationError, CommandError) as error:
            raise click.ClickException(str(error)) from None

    async def connected(self, work: "Callable[[ApiServer, str], Awaitable[ResultT]]") -> ResultT:
        """The same in an event loop, with the original errors."""
        from pdinference.cluster.client import ApiServer, default_namespace, load_configuration  # noqa: PLC0415

        configuration = await load_configuration(self._kubeconfig, self._context)
        api = ApiServer(configuration, kubeconfig=self._kubeconfig, context=self._context, user_agent=_USER_AGENT)
        try:
            return await work(api, self.namespace or default_namespace(self._kubeconfig, self._context))
        finally:
            await api.close()


Connect = Callable[[str], Connection]
"""From the name of a resource to its connection."""


def _with_remedy(error: "ApiError") -> str:
    message = error.message.rstrip(".\n")
    match error.status:
        case 0:
            return f"{message}. Check that the cluster runs, and its context: `kubectl config get-contexts`."
        case HTTPStatus.UNAUTHORIZED:
            return f"The API server refuses your credentials ({message}). Log in again, or pass another --context."
        case HTTPStatus.FORBIDDEN:
            return f"{message}. Ask for this right: docs/kubectl-pdi.md#rights has those of each command."
        case _:
            return _NO_KIND if error.unserved else error.message


def connection_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the cluster. The command gets, as `connect`, a function from a name to the resource."""

    @click.option("-n", "--namespace", help="Namespace of the resource.  [default: the namespace of the context]")
    @click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="Kubeconfig file.  [default: that of kubectl]",
    )
    @click.option("--context", help="Context in the kubeconfig.  [default: the current context]")
    @wraps(command)
    def with_connection(*, namespace: str | None, kubeconfig: Path | None, context: str | None, **options: Any) -> None:
        command(connect=lambda name: Connection(name, namespace, kubeconfig, context), **options)

    return with_connection
