"""Options for the facts of a model, and the inputs of a memory plan from them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pdinference.api.quantities import quantity

if TYPE_CHECKING:
    from pdinference.api.v1alpha1 import PDInference
    from pdinference.planning.memory import Inputs


class _Size(click.ParamType[int]):
    """A size such as 80GiB, 80Gi or 85899345920."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        size = quantity(str(value).removesuffix("B"))
        if size is None or size <= 0:
            self.fail(f"{value!r} is not a size. Write for example 80GiB.", param, ctx)
        return int(size)


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Where the facts of a model come from.

    Attributes:
        folder: Folder with its files.
        config: Its config.json.
        online: Whether to ask its hub.
        memory: Bytes of one device.
    """

    folder: Path | None
    config: Path | None
    online: bool
    memory: int | None

    def inputs(self, resource: "PDInference", stored: dict[str, Any] | None = None) -> "Inputs":
        """The inputs of the memory plan of a resource.

        Args:
            resource: The resource.
            stored: Facts of the model in the status of a stored resource.

        Raises:
            ClickException: Nothing is known of the model, or its files are damaged.
        """
        # Only some commands import the planner and the file readers.
        from pdinference.cli.plan.model_files import read_model  # noqa: PLC0415
        from pdinference.models.errors import ModelFilesError  # noqa: PLC0415
        from pdinference.planning.memory import (  # noqa: PLC0415
            Inputs,
            UnusableConfigError,
            known_facts,
            known_weights,
            model_facts,
            stated_memory,
        )

        try:
            config, checkpoint = known_facts(resource.spec, _asked(resource) if self.online else stored)
            if config is None or self.folder or self.config:
                config, read = read_model(resource.spec.model.source, self.folder, self.config)
                checkpoint = known_weights(read, model_facts(config)) if read else checkpoint
            memory = stated_memory(self.memory) if self.memory else None
            return Inputs(resource.spec, model_facts(config), checkpoint, memory)
        except (ModelFilesError, UnusableConfigError) as error:
            raise click.ClickException(f"{resource.metadata.name}: {error}") from None


def model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options. The command gets them as `model`."""

    @click.option(
        "--model-dir",
        "folder",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        help="Folder with the model's config.json and weights.  [default: spec.model.source.path, if it exists]",
    )
    @click.option(
        "--model-config",
        "config",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="The model's config.json only. Weights are then computed from the architecture.",
    )
    @click.option("--online", is_flag=True, help="Read config and size of weights from the model's hub.")
    @click.option("--memory", type=_Size(), help="Memory of one device, instead of that of its product: 80GiB.")
    @wraps(command)
    def with_model(
        *, folder: Path | None, config: Path | None, online: bool, memory: int | None, **options: Any
    ) -> None:
        command(model=ModelOptions(folder, config, online, memory), **options)

    return with_model


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
        here = (
            "This machine cannot reach it. Behind a proxy, set HTTPS_PROXY."
            if error.reason == "HubUnreachable"
            else str(error)
        )
        raise click.ClickException(
            f"{resource.metadata.name}: {source.hub.repository} on {where}: {here.removesuffix(' It is tried again.')} "
            "--model-dir and --model-config need no hub."
        ) from None
    return {"facts": {**facts, "source": source.identity()}}
