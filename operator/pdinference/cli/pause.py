"""The commands `pdinference pause` and `pdinference resume`."""

from collections.abc import Iterator
from typing import Any, Final

import click

from pdinference.api import names
from pdinference.cli.chosen import chosen, name_argument
from pdinference.cli.connection import Connect, connection_options
from pdinference.cli.output import output_option, print_json, say
from pdinference.cluster.client import ApiServer
from pdinference.cluster.kinds import RESOURCE
from pdinference.cluster.state.records import is_paused

Json = dict[str, Any]

_OWN: Final = "pdinference"
"""Field manager of this program: the API server takes it from the user agent."""


@click.command("pause")
@name_argument
@output_option()
@connection_options
def pause_command(*, name: str | None, output: str, connect: Connect) -> None:
    """Store edits of a resource without a roll-out, until it is resumed.

    What runs keeps running: pods scale, sleep, wake and are repaired by the spec in effect, and a roll-out that has
    begun ends. spec.decode.replicas takes effect, as for a paused Deployment. The mark is the annotation
    pdinference.io/paused, so no field of the spec changes.

    NAME may be left out if the namespace has one PDInference.
    """
    _set(name, output, connect, paused=True)


@click.command("resume")
@name_argument
@output_option()
@connection_options
def resume_command(*, name: str | None, output: str, connect: Connect) -> None:
    """Roll out the stored spec of a paused resource.

    `pdinference diff` prints what it changes. NAME may be left out if the namespace has one PDInference.
    """
    _set(name, output, connect, paused=False)


def _set(name: str | None, output: str, connect: Connect, *, paused: bool) -> None:
    async def work(api: ApiServer, namespace: str) -> None:
        resource = await chosen(api, namespace, name)
        metadata = resource["metadata"]
        writes = is_paused(metadata) != paused
        if writes:
            # A merge patch also removes a mark that another client has set, which server-side apply would keep.
            mark = {names.ANNOTATION_PAUSED: "true" if paused else None}
            patch = {"metadata": {"uid": metadata["uid"], "annotations": mark}}
            await api.merge(RESOURCE.path(namespace, metadata["name"]), patch)
        if output == "json":
            print_json({"resource": metadata["name"], "paused": paused, "written": writes})
        else:
            say(_said(metadata["name"], namespace, paused=paused, writes=writes))
        for manager in _others(metadata) if writes and not paused else ():
            say(
                f"Warning: {manager} has set the annotation {names.ANNOTATION_PAUSED}. Remove it there, too, or it "
                "comes back.",
                err=True,
            )

    connect(name or "").do(work)


def _said(name: str, namespace: str, *, paused: bool, writes: bool) -> str:
    if not writes:
        return f"{name} is {'paused already' if paused else 'not paused'}. Nothing was written."
    if paused:
        return (
            f"{name} is paused: edits are stored and not rolled out until `kubectl pdi resume {name} -n {namespace}`."
        )
    return (
        f"{name} is resumed, and its stored spec rolls out. Follow it with "
        f"`kubectl pdi status {name} -n {namespace} --watch`."
    )


def _others(metadata: Json) -> Iterator[str]:
    """Other field managers that have set the mark."""
    for entry in metadata.get("managedFields") or ():
        annotations = (entry.get("fieldsV1") or {}).get("f:metadata", {}).get("f:annotations", {})
        if f"f:{names.ANNOTATION_PAUSED}" in annotations and entry.get("manager") != _OWN:
            yield str(entry.get("manager"))
