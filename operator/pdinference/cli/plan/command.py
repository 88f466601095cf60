"""`pdinference plan`: predicts the memory usage of a resource's pods."""

import json
import sys
from typing import IO, TYPE_CHECKING

import click

from pdinference.api.validation import validated
from pdinference.cli.documents import documents, file_option, problems_told
from pdinference.cli.model_inputs import ModelOptions, model_options

if TYPE_CHECKING:
    from pdinference.api.v1alpha1 import PDInference
    from pdinference.cli.plan.answer import Answer


@click.command("plan")
@file_option
@model_options
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def plan_command(*, source: IO[str], model: ModelOptions, output: str) -> None:
    """Predict the memory usage of each role, and how many requests fit. Offline unless --online is set."""
    found = []
    for document in documents(source, None):
        with problems_told(document, source.name):
            resource = validated(document)
        _warn_of_adapters(resource, source.name)
        answer = _answer(resource, model)
        _warn_of_model(answer, source.name)
        found.append(answer)
    if output == "json":
        items = [answer.as_json() for answer in found]
        json.dump(items[0] if len(items) == 1 else {"items": items}, sys.stdout, indent=2)
        sys.stdout.write("\n")
        return
    from pdinference.cli.plan.table import plan_console, print_plan  # noqa: PLC0415 - the import of Rich is slow

    console = plan_console()
    for answer in found:
        print_plan(answer, console)


def _warn_of_adapters(resource: "PDInference", file: str) -> None:
    """Warn of adapters that vLLM cannot load. The plan itself depends on maxRank only."""
    if resource.spec.model.lora is None:
        return
    from pdinference.checks.adapters import adapter_problems, adapter_warnings  # noqa: PLC0415
    from pdinference.checks.facts import adapters_of, facts_of  # noqa: PLC0415
    from pdinference.cli.local_adapters import local_facts  # noqa: PLC0415

    spec, shape = resource.spec, facts_of(resource.spec, None).shape
    known = adapters_of(spec, local_facts(resource))
    for problem in (*adapter_problems(spec, known, shape.model_type if shape else ""), *adapter_warnings(spec, known)):
        click.echo(f"Warning: {file}: {problem}", err=True)


def _warn_of_model(answer: "Answer", file: str) -> None:
    """Warn of models that vLLM rejects at start, which the plan does not show."""
    from pdinference.checks.model_shape import model_problems  # noqa: PLC0415
    from pdinference.checks.older_models import older_model_warnings  # noqa: PLC0415

    spec, facts = answer.inputs.spec, answer.inputs.facts
    for problem in (*model_problems(spec, facts), *older_model_warnings(spec, facts)):
        click.echo(f"Warning: {file}: {problem}", err=True)


def _answer(resource: "PDInference", model: ModelOptions) -> "Answer":
    # Only this command imports the planner.
    from pdinference.cli.plan.answer import Answer  # noqa: PLC0415
    from pdinference.planning.memory import UnusableSpecError, plan_role  # noqa: PLC0415

    inputs = model.inputs(resource)
    try:
        return Answer(resource, inputs, {role: plan_role(inputs, role) for role in resource.spec.engine_roles})
    except UnusableSpecError as error:
        raise click.ClickException(f"{resource.metadata.name}: {error}") from None
