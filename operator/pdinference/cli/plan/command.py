"""`pdinference plan`: predicts the memory usage of a resource's pods."""

import json
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from pdinference.api.quantities import quantity
from pdinference.api.validation import validated
from pdinference.cli.documents import documents, file_option, problems_told

if TYPE_CHECKING:
    from pdinference.api.v1alpha1 import PDInference
    from pdinference.cli.plan.answer import Answer


class _Size(click.ParamType[int]):
    """A size such as 80GiB, 80Gi or 85899345920."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        size = quantity(str(value).removesuffix("B"))
        if size is None or size <= 0:
            self.fail(f"{value!r} is not a size. Write for example 80GiB.", param, ctx)
        return int(size)


@click.command("plan")
@file_option
@click.option(
    "--model-dir",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder with the model's config.json and weights.  [default: spec.model.source.path, if it exists]",
)
@click.option(
    "--model-config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The model's config.json only. Weights are then computed from the architecture.",
)
@click.option("--online", is_flag=True, help="Read config and size of weights from the model's hub.")
@click.option("--memory", type=_Size(), help="Memory of one device, instead of that of its product: 80GiB.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def plan_command(
    *, source: IO[str], model_dir: Path | None, model_config: Path | None, online: bool, memory: int | None, output: str
) -> None:
    """Predict the memory usage of each role, and how many requests fit. Offline unless --online is set."""
    found = []
    for document in documents(source, None):
        with problems_told(document, source.name):
            resource = validated(document)
        _warn_of_adapters(resource, source.name)
        answer = _answer(resource, model_dir, model_config, memory, online=online)
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


def _answer(
    resource: "PDInference", model_dir: Path | None, model_config: Path | None, memory: int | None, *, online: bool
) -> "Answer":
    # Only this command imports the planner and the file readers.
    from pdinference.cli.plan.answer import Answer  # noqa: PLC0415
    from pdinference.cli.plan.model_files import read_model  # noqa: PLC0415
    from pdinference.models.errors import ModelFilesError  # noqa: PLC0415
    from pdinference.planning.memory import (  # noqa: PLC0415
        Inputs,
        UnusableConfigError,
        UnusableSpecError,
        known_facts,
        known_weights,
        model_facts,
        plan_role,
        stated_memory,
    )

    try:
        config, checkpoint = known_facts(resource.spec, _asked(resource) if online else None)
        if config is None or model_dir or model_config:
            config, read = read_model(resource.spec.model.source, model_dir, model_config)
            checkpoint = known_weights(read, model_facts(config)) if read else checkpoint
        inputs = Inputs(resource.spec, model_facts(config), checkpoint, stated_memory(memory) if memory else None)
        return Answer(resource, inputs, {role: plan_role(inputs, role) for role in resource.spec.engine_roles})
    except (ModelFilesError, UnusableConfigError, UnusableSpecError) as error:
        raise click.ClickException(f"{resource.metadata.name}: {error}") from None


def _asked(resource: "PDInference") -> dict[str, Any] | None:
    """Facts from the hub in the form of the status; None for models that are not on a hub."""
    from pdinference.cli.model_commands import hub_of  # noqa: PLC0415
    from pdinference.models.errors import ModelError  # noqa: PLC0415
    from pdinference.models.facts import facts_of_hub  # noqa: PLC0415

    source = resource.spec.model.source
    if source.hub is None:
        return None
    where = "huggingFace" if source.hugging_face else "modelScope"
    try:
        _, facts = facts_of_hub(hub_of(where, source.hub.repository, source.hub.revision))
    except ModelError as error:
        # The original message is for pods, which retry and use the proxy of the resource.
        here = "This machine cannot reach it (HTTPS_PROXY counts)." if error.reason == "HubUnreachable" else str(error)
        raise click.ClickException(
            f"{resource.metadata.name}: {source.hub.repository} on {where}: {here.removesuffix(' It is tried again.')} "
            "--model-dir and --model-config need no hub."
        ) from None
    return {"facts": {**facts, "source": source.identity()}}
