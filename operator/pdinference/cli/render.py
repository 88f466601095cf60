"""The command `pdinference render`.

Tests: tests/cli/test_commands.py
"""

from typing import IO, Any

import click

from pdinference.api.validation import InvalidResourceError
from pdinference.checks import Examination, examine
from pdinference.cli.documents import documents, problems_reported
from pdinference.cli.file_options import files_option
from pdinference.cli.installation import installation
from pdinference.cli.local_adapters import local_facts
from pdinference.cli.output import say
from pdinference.cli.plain_yaml import BlockDumper, print_yaml
from pdinference.manifests import RenderSettings


@click.command("render")
@files_option()
@click.option("-n", "--namespace", default=None, help="Namespace of resources without one.  [default: default]")
@installation
def render_command(sources: tuple[IO[str], ...], namespace: str | None, settings: RenderSettings) -> None:
    """Print the objects that the operator would apply, without a cluster."""
    for source in sources:
        for document in documents(source, namespace):
            with problems_reported(document, source.name):
                _print_rendered(document, source.name, settings)


def _print_rendered(document: dict[str, Any], file: str, settings: RenderSettings) -> None:
    examination = examine(document, settings, local_facts)
    _warn(examination, file)
    if examination.rendered is None:
        raise InvalidResourceError(examination.problems)
    print_yaml(examination.rendered.objects, Dumper=BlockDumper)


def _warn(examination: Examination, file: str) -> None:
    for warning in examination.warnings:
        say(f"Warning: {file}: {warning}", err=True)
