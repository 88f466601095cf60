"""The command `pdinference restart`."""

from datetime import UTC, datetime
from typing import Any, Final

import click

from pdinference.api import names
from pdinference.api.names import SERVING_ROLES, Role
from pdinference.cli.chosen import chosen, optional_name
from pdinference.cli.connection import Connect, connection_options
from pdinference.cli.output import output_option, print_json, say
from pdinference.cluster.client import ApiServer
from pdinference.cluster.kinds import DEPLOYMENT, STATEFUL_SET, Kind

Json = dict[str, Any]

_RESTARTED: Final = "kubectl.kubernetes.io/restartedAt"
"""The annotation of `kubectl rollout restart`. The operator leaves it alone: its pod templates lack it."""


@click.command("restart")
@optional_name("role", [str(role) for role in SERVING_ROLES])
@output_option()
@connection_options
def restart_command(*, name: str | None, role: str, output: str, connect: Connect) -> None:
    """Replace the pods of a role one by one, as `kubectl rollout restart` does.

    The spec, and so the revision, stays. A pod of D or of the router starts before the one that it replaces ends, so D
    needs the free GPUs of one pod. A pod of P ends first. While no P pod is ready, router.whenNoPrefill decides.

    NAME may be left out if the namespace has one PDInference. parameter is P, decode is D.
    """

    async def work(api: ApiServer, namespace: str) -> None:
        resource = await chosen(api, namespace, name)
        found = await _workloads(api, namespace, resource, Role(role))
        if not found:
            raise click.ClickException(_nothing(resource, role))
        moment = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        for kind, workload in found:
            await api.merge(kind.path(namespace, workload), _restart_at(moment))
            if output == "text":
                click.echo(f"{kind.name} {workload} restarts.")
        if output == "json":
            print_json({"restartedAt": moment, "workloads": [{"kind": kind.name, "name": one} for kind, one in found]})
        else:
            say(f"Follow it with `kubectl pdi status {resource['metadata']['name']} -n {namespace} --watch`.")

    connect(name or "").do(work)


def _restart_at(moment: str) -> Json:
    return {"spec": {"template": {"metadata": {"annotations": {_RESTARTED: moment}}}}}


async def _workloads(api: ApiServer, namespace: str, resource: Json, role: Role) -> list[tuple[Kind, str]]:
    """The workloads of a role, of all revisions, that have pods, those of further nodes among them."""
    selector = f"{names.MANAGED_SELECTOR},{names.LABEL_NAME}={resource['metadata']['name']}"
    found = []
    for kind in (STATEFUL_SET, DEPLOYMENT):
        for item in (await api.get(kind.path(namespace), labelSelector=selector)).get("items") or ():
            node = names.node_of(item["metadata"]["labels"])
            if node is not None and node[0] is role and item["spec"].get("replicas") != 0:
                found.append((kind, item["metadata"]["name"]))
    return found


def _nothing(resource: Json, role: str) -> str:
    name = resource["metadata"]["name"]
    return (
        f"{name} has no pods of {role} of its own: `kubectl pdi status {name}` says why. In the pods of D (HostLocal), "
        "P restarts with them: restart decode."
    )
