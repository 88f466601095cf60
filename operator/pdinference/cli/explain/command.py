"""The command `pdinference explain`.

Tests: tests/cli/test_explain.py, tests/cli/test_explain_files.py
"""

import asyncio
import sys
from typing import IO

import click
import yaml

from pdinference.cli.chosen import chosen, name_argument
from pdinference.cli.connection import Connect, Connection, connection_options
from pdinference.cli.explain.explanation import Explanation, explanation, left_alone
from pdinference.cli.explain.file_objects import read_file
from pdinference.cli.explain.live_objects import ObjectCache, UnreadableResourceError, read_live
from pdinference.cli.explain.moment import look
from pdinference.cli.explain.text import print_explanation
from pdinference.cli.file_options import file_option
from pdinference.cli.installation import installation
from pdinference.cli.installed import Installed, installed, stated
from pdinference.cli.output import output_option, print_json
from pdinference.cli.plain_yaml import PlainDumper
from pdinference.cli.terminal import terminal
from pdinference.cluster.client import ApiServer
from pdinference.cluster.objects import UNREADABLE_ERRORS
from pdinference.cluster.state.records import ResourceRecord
from pdinference.examination.desired import InvalidSpecError
from pdinference.manifests import RenderSettings


@click.command("explain")
@name_argument
@file_option(
    "File with the output of kubectl get -o yaml, instead of the cluster; - reads standard input.", required=False
)
@output_option("yaml")
@connection_options
@installation
def explain_command(
    *,
    name: str | None,
    source: IO[str] | None,
    output: str,
    connect: Connect,
    settings: RenderSettings,
) -> None:
    """Print the next actions of the operator for a PDInference, with reasons. Writes nothing.

    Manifests depend on the operator's settings. They are read from its Deployment; if you may not read it, and with
    --file, pass the same options. NAME may be left out if the namespace has one PDInference.
    """
    if source is not None:
        found = _of_file(source, name, connect(name or "").namespace, settings)
    else:
        found = _of_cluster(connect(name or ""), name, settings)
    _print(found, output)


def _of_file(source: IO[str], name: str | None, namespace: str | None, settings: RenderSettings) -> Explanation:
    api, cache, resource = read_file(source, name, namespace, keda=settings.keda is not None)
    try:
        return asyncio.run(_explained(api, cache, resource, stated(settings), from_file=True))
    except UNREADABLE_ERRORS as error:  # an API server has not validated the file
        raise click.ClickException(f"{source.name} has an object that is not as its API type says: {error}") from None


def _of_cluster(connection: Connection, name: str | None, settings: RenderSettings) -> Explanation:
    async def work(api: ApiServer, namespace: str) -> Explanation:
        body = await chosen(api, namespace, name)
        try:
            found = await installed(api, body["metadata"]["namespace"], settings)
            cache, resource = await read_live(api, body, keda=found.settings.keda is not None)
        except UnreadableResourceError as error:
            raise click.ClickException(str(error)) from None
        return await _explained(api, cache, resource, found, from_file=False)

    return connection.do(work)


async def _explained(
    api: ApiServer, cache: ObjectCache, resource: ResourceRecord, found: Installed, *, from_file: bool
) -> Explanation:
    if resource.deleting:
        return left_alone(resource, "It is being deleted. Kubernetes deletes its objects; the operator writes nothing.")
    try:
        moment = await look(api, cache, resource, found.settings)
    except InvalidSpecError as error:
        return left_alone(resource, error.with_consequence("nothing is changed and running pods are left alone"))
    return explanation(moment, cache, found, from_file=from_file)


def _print(found: Explanation, output: str) -> None:
    if output == "json":
        print_json(found.as_json())
    elif output == "yaml":
        yaml.dump(found.as_json(), sys.stdout, Dumper=PlainDumper, sort_keys=False, width=120)
    else:
        print_explanation(found, terminal())
