"""One look at a PDBatch: all that is wrong with it. Its PDInference may be created later, and is not looked for."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pdinference.api.v1alpha1 import PDBatch
from pdinference.api.v1alpha1.batch import FIXED_RULE, ClaimFile, ClaimFolder
from pdinference.api.validation import Problem, first_of, read_batch
from pdinference.checks.resources import problems_of_resources
from pdinference.engine.batch import WRITTEN, output_folder
from pdinference.manifests import RenderSettings
from pdinference.manifests.policy import batch_policy_problems


@dataclass(frozen=True)
class BatchExamination:
    """What was found.

    Attributes:
        batch: The resource; None when the document has problems.
        problems: Why it cannot work.
    """

    batch: PDBatch | None
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...] = ()


def examine_batch(
    document: Mapping[str, Any],
    settings: RenderSettings,
    old: Mapping[str, Any] | None = None,
    *,
    begun: bool = False,
) -> BatchExamination:
    """Look at everything at once.

    Args:
        document: The resource as JSON data.
        settings: What the operator was installed with.
        old: What an update replaces; None for a resource that is new, or is only looked at.
        begun: Whether the operator has made its Job, and so the ConfigMap for the answers, already.
    """
    reading = read_batch(document)
    if reading.resource is None:
        return BatchExamination(None, first_of(reading.problems))
    # One that was accepted may be suspended and resumed, whatever the operator is installed with now.
    config_maps = settings.batch_config_maps or begun or old is not None
    found = (
        *batch_policy_problems(reading.resource, settings),
        *_problems(reading.resource, read_batch(old).resource if old is not None else None, config_maps=config_maps),
    )
    problems = (*reading.problems, *(p for p in found if not reading.concerns(p.field)))
    return BatchExamination(None if problems else reading.resource, first_of(problems))


def _problems(batch: PDBatch, old: PDBatch | None, *, config_maps: bool) -> Iterator[Problem]:
    yield from problems_of_resources("spec.resources", batch.spec.resources)
    source, target = batch.spec.input.persistent_volume_claim, batch.spec.output.persistent_volume_claim
    if source is not None and target is not None and _overwrites(batch, source, target):
        yield Problem(
            "spec.input.persistentVolumeClaim.path",
            f"{source.path} is a file that the answers are written into. Move the input, or set "
            "spec.output.persistentVolumeClaim.path to another folder.",
        )
    if batch.spec.output.config_map is not None and not config_maps:
        yield Problem(
            "spec.output.configMap",
            "The operator is not installed to write ConfigMaps. Use spec.output.persistentVolumeClaim, or ask who "
            "installed it to set the chart value rbac.batchConfigMaps: true.",
        )
    if old is not None and not batch.spec.same_work(old.spec):
        yield Problem("spec", FIXED_RULE.message)


def _overwrites(batch: PDBatch, source: ClaimFile, target: ClaimFolder) -> bool:
    """Whether the runner would write into the very file that it reads."""
    folder = output_folder(batch, target)
    return source.claim_name == target.claim_name and source.path in {f"{folder}/{name}" for name in WRITTEN}
