"""Examines a PDBatch document. Its PDInference is not looked up, because it may be created later."""

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
    """Result of examining a PDBatch.

    Attributes:
        batch: The resource; None if the document has problems.
        problems: Reasons to reject the resource.
        warnings: Fields that are ignored.
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
    admitted: bool = False,
) -> BatchExamination:
    """Run all checks on a document.

    Args:
        document: The resource as JSON data.
        settings: Settings of the operator.
        old: The object that an update replaces; None otherwise.
        begun: Whether the operator has already created the Job and the output ConfigMap.
        admitted: Whether the API server sent the document, so that unknown fields come from a CRD of another version.
    """
    reading = read_batch(document, admitted=admitted)
    if reading.resource is None:
        return BatchExamination(None, first_of(reading.problems), reading.ignored)
    # An accepted batch may be suspended and resumed even if the operator's settings have changed.
    accepted = begun or old is not None
    found = (
        *(() if accepted else batch_policy_problems(reading.resource, settings)),
        *_problems(
            reading.resource,
            read_batch(old, admitted=admitted).resource if old is not None else None,
            config_maps=settings.batch_config_maps or accepted,
        ),
    )
    problems = (*reading.problems, *(p for p in found if not reading.concerns(p.field)))
    return BatchExamination(None if problems else reading.resource, first_of(problems), reading.ignored)


def _problems(batch: PDBatch, old: PDBatch | None, *, config_maps: bool) -> Iterator[Problem]:
    yield from problems_of_resources("spec.resources", batch.spec.resources)
    source, target = batch.spec.input.persistent_volume_claim, batch.spec.output.persistent_volume_claim
    if source is not None and target is not None and _overwrites(batch, source, target):
        yield Problem(
            "spec.input.persistentVolumeClaim.path",
            f"The output would overwrite {source.path}. Move the input, or set "
            "spec.output.persistentVolumeClaim.path to another folder.",
        )
    if batch.spec.output.config_map is not None and not config_maps:
        yield Problem(
            "spec.output.configMap",
            "The operator may not write ConfigMaps. Use spec.output.persistentVolumeClaim, or ask the administrator "
            "to set the chart value rbac.batchConfigMaps: true.",
        )
    if old is not None and not batch.spec.same_work(old.spec):
        yield Problem("spec", FIXED_RULE.message)


def _overwrites(batch: PDBatch, source: ClaimFile, target: ClaimFolder) -> bool:
    """Whether the runner would write to its input file."""
    folder = output_folder(batch, target)
    return source.claim_name == target.claim_name and source.path in {f"{folder}/{name}" for name in WRITTEN}
