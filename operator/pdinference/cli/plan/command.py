"""`pdinference plan`: predicts the memory usage of a resource's pods.

Tests: tests/cli/test_plan.py, tests/cli/test_adapters.py
"""

from typing import IO, Any

import click

from pdinference.api.v1alpha1 import PDInference
from pdinference.api.validation import validated
from pdinference.checks.adapters import adapter_problems, adapter_warnings
from pdinference.checks.facts import adapters_of, facts_of
from pdinference.checks.model_shape import model_problems
from pdinference.checks.older_models import older_model_warnings
from pdinference.checks.plan_warnings import plan_warnings
from pdinference.cli.chosen import chosen, name_argument
from pdinference.cli.connection import Connect, Connection, connection_options
from pdinference.cli.documents import documents, problems_reported
from pdinference.cli.file_options import files_option
from pdinference.cli.local_adapters import local_facts
from pdinference.cli.model_inputs import ModelOptions, model_options
from pdinference.cli.output import output_option, print_json, say
from pdinference.cli.plan.answer import PlanAnswer
from pdinference.cli.plan.table import print_plan
from pdinference.cli.terminal import terminal
from pdinference.memory import UnusableSpecError, plan_role

Json = dict[str, Any]


@click.command("plan")
@name_argument
@files_option("File with our resources, instead of the stored one; - reads standard input. Repeatable.", required=False)
@model_options
@output_option("table")
@connection_options
def plan_command(
    *,
    name: str | None,
    sources: tuple[IO[str], ...],
    model: ModelOptions,
    output: str,
    connect: Connect,
) -> None:
    """Predict the memory usage of each role, and how many requests fit.

    With -f FILE no cluster is asked, and without --online no hub. Else NAME may be left out if the namespace has one
    PDInference.
    """
    if name is not None and sources:
        raise click.UsageError("Write NAME or -f FILE, not both.")
    found = []
    for document, place in _documents(sources, name, connect(name or "")):
        with problems_reported(document, place):
            resource = validated(document)
        _warn_of_adapters(resource, place)
        answer = _answer(resource, model, (document.get("status") or {}).get("model"))
        _warn_of_model(answer, place)
        found.append(answer)
    if output == "json":
        items = [answer.as_json() for answer in found]
        print_json(items[0] if len(items) == 1 else {"items": items})
        return
    console = terminal()
    for answer in found:
        print_plan(answer, console)


def _documents(sources: tuple[IO[str], ...], name: str | None, connection: Connection) -> list[tuple[Json, str]]:
    """Resources, each with the place that messages name."""
    if sources:
        return [(document, source.name) for source in sources for document in documents(source, connection.namespace)]
    document = connection.do(lambda api, namespace: chosen(api, namespace, name))
    metadata = document["metadata"]
    return [(document, f"{metadata['namespace']}/{metadata['name']}")]


def _warn_of_adapters(resource: PDInference, file: str) -> None:
    """Warn of adapters that vLLM cannot load. The plan itself depends on maxRank only."""
    if resource.spec.model.lora is None:
        return

    spec, shape = resource.spec, facts_of(resource.spec, None).shape
    known = adapters_of(spec, local_facts(resource))
    for problem in (*adapter_problems(spec, known, shape.model_type if shape else ""), *adapter_warnings(spec, known)):
        say(f"Warning: {file}: {problem}", err=True)


def _warn_of_model(answer: PlanAnswer, file: str) -> None:
    """Warn of models that vLLM rejects at start, and of what is not counted, which the plan does not show."""
    spec, facts = answer.inputs.spec, answer.inputs.facts
    found = (*model_problems(spec, facts), *older_model_warnings(spec, facts), *plan_warnings(answer.plans))
    for problem in found:
        say(f"Warning: {file}: {problem}", err=True)


def _answer(resource: PDInference, model: ModelOptions, stored: Json | None) -> PlanAnswer:
    inputs = model.inputs(resource, stored)
    try:
        return PlanAnswer(resource, inputs, {role: plan_role(inputs, role) for role in resource.spec.engine_roles})
    except UnusableSpecError as error:
        raise click.ClickException(f"{resource.metadata.name}: {error}") from None
