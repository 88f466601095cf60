"""The command `pdinference validate`.

Tests: tests/cli/test_commands.py, tests/cli/test_narrow.py
"""

import sys
from typing import IO, Any, Final

import click

from pdinference.api import names
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.validation import Problem, first_of, refusal
from pdinference.checks import Examination, examine_any
from pdinference.cli.documents import documents, name_of
from pdinference.cli.file_options import files_option
from pdinference.cli.installation import installation
from pdinference.cli.local_adapters import local_facts
from pdinference.cli.output import output_option, print_json, say, wrap_error
from pdinference.manifests import RenderSettings

Json = dict[str, Any]

_REFUSED: Final = 1
_STDIN: Final = "<stdin>"


@click.command("validate")
@files_option()
@click.option("-n", "--namespace", default=None, help="Namespace of resources without one.  [default: default]")
@output_option()
@installation
def validate_command(
    sources: tuple[IO[str], ...], namespace: str | None, output: str, settings: RenderSettings
) -> None:
    """Check resources like the webhook, without a cluster, and print all problems."""
    found = [
        _Checked(document, source.name, settings)
        for source in sources
        for document in documents(source, namespace, (names.KIND, names.BATCH_KIND))
    ]
    if output == "json":
        print_json({"items": [one.as_json() for one in found]})
    else:
        for one in found:
            one.print()
    if any(one.problems for one in found):
        sys.exit(_REFUSED)


class _Checked:
    """A document with its problems and warnings."""

    def __init__(self, document: Json, file: str, settings: RenderSettings) -> None:
        examination = examine_any(document, settings, known=local_facts)
        self.problems = first_of(examination.problems)
        self._warnings = examination.warnings
        self._unplanned = (
            examination.resource if isinstance(examination, Examination) and examination.memory.fits is None else None
        )
        self._document = document
        self._file = file

    def print(self) -> None:
        """For people."""
        file = self._file
        for warning in self._warnings:
            say(f"Warning: {file}: {warning}", err=True)
        kind, name = self._document["kind"], name_of(self._document)
        if self.problems:
            error = click.ClickException(f"{file}: {refusal(name, self.problems, kind)}")
            wrap_error(error, indent=2)
            error.show()
        else:
            say(f"{file}: {kind} {name} is valid.")
            if self._unplanned is not None:
                say(f"  Whether its model fits was not checked: {self._how_to_plan(self._unplanned)}")

    def _how_to_plan(self, resource: PDInference) -> str:
        again = "-" if self._file == _STDIN else self._file
        model = resource.spec.model
        if model.source.hub and not (model.architecture and model.architecture.config):
            return f"`pdinference plan --online -f {again}` reads its config.json from the hub."
        return f"`pdinference plan -f {again}` says what is missing."

    def as_json(self) -> Json:
        """For programs."""
        return {
            "kind": self._document["kind"],
            "name": name_of(self._document),
            "valid": not self.problems,
            "problems": as_json(self.problems),
            "warnings": as_json(self._warnings),
        }


def as_json(problems: tuple[Problem, ...]) -> list[Json]:
    """Problems for programs."""
    return [{"field": problem.field, "message": problem.message} for problem in problems]
