"""Examines a PDInference document: all problems and warnings in one pass."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pdinference.api.v1alpha1 import PDInference
from pdinference.api.validation import InvalidResourceError, Problem, first_of, read
from pdinference.checks.adapters import adapter_problems, adapter_warnings
from pdinference.checks.api_servers import api_server_problems, api_server_warnings
from pdinference.checks.autoscalers import autoscaler_problems
from pdinference.checks.batches import batch_problems
from pdinference.checks.compile_cache import compile_cache_problems, compile_cache_warnings
from pdinference.checks.expert_transport import expert_transport_problems, expert_transport_warnings
from pdinference.checks.experts import expert_balance_problems
from pdinference.checks.facts import Facts, adapters_of, facts_of
from pdinference.checks.known_faults import known_faults
from pdinference.checks.loading import loading_problems
from pdinference.checks.lora import lora_problems
from pdinference.checks.memory import can_be_planned, judge
from pdinference.checks.model_shape import model_problems
from pdinference.checks.older_models import older_model_warnings, tokenizer_problems
from pdinference.checks.options import option_problems, option_warnings
from pdinference.checks.pair import pair_problems
from pdinference.checks.queue import queue_problems
from pdinference.checks.recurrent import recurrent_warnings
from pdinference.checks.resources import resource_problems
from pdinference.checks.risks import path_risks, pinning_risks, product_risks, risks
from pdinference.checks.route import route_warnings
from pdinference.checks.scaling import scaling_problems
from pdinference.checks.traces import traces_problems
from pdinference.manifests import Rendered, RenderSettings, render
from pdinference.manifests.policy import policy_problems
from pdinference.memory import NO_VERDICT, MemoryVerdict

Known = Callable[[PDInference], Mapping[str, Any] | None]
"""Returns facts about a resource's model from outside the document, in the form of `status.model`."""


@dataclass(frozen=True)
class Examination:
    """Result of examining a PDInference.

    Attributes:
        resource: The resource; None if the document has problems.
        rendered: Its children; None if the document has problems.
        problems: Reasons to reject the resource.
        warnings: Risks of a valid resource.
        memory: The memory verdict.
        ignored: Fields of a CRD of another version, which are among the warnings.
    """

    resource: PDInference | None
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    memory: MemoryVerdict
    ignored: tuple[str, ...] = ()
    rendered: Rendered | None = None


def examine(
    document: Mapping[str, Any],
    settings: RenderSettings,
    known: Known = lambda _: None,
    *,
    admitted: bool = False,
) -> Examination:
    """Run all checks on a document.

    Args:
        document: The resource as JSON data.
        settings: Settings of the operator.
        known: Called after the document has been read.
        admitted: Whether the API server sent the document, so that unknown fields come from a CRD of another version.
    """
    reading = read(document, admitted=admitted)
    if reading.resource is None:
        return Examination(None, first_of(reading.problems), reading.ignored, NO_VERDICT)
    model = known(reading.resource)
    facts = facts_of(reading.resource.spec, model)
    adapters = adapters_of(reading.resource.spec, model)
    found = (
        *_problems(reading.resource, facts, settings),
        *adapter_problems(reading.resource.spec, adapters, facts.shape.model_type if facts.shape else ""),
    )
    # A field that was left out as invalid must not also be reported for its default.
    problems = (*reading.problems, *(p for p in found if not reading.concerns(p.field)))
    rendered = None
    if not problems:
        rendered, problems = _rendered(reading.resource, settings)
    memory = judge(reading.resource.spec, facts) if can_be_planned(problems) else NO_VERDICT
    problems += memory.problems
    warnings = (
        *reading.ignored,
        *memory.warnings,
        *_warnings(reading.resource),
        *older_model_warnings(reading.resource.spec, facts.shape),
        *recurrent_warnings(reading.resource.spec, facts.shape),
        *adapter_warnings(reading.resource.spec, adapters),
    )
    if not problems:  # products may be among the fields that could not be read
        spec = reading.resource.spec
        warnings += (*pinning_risks(spec), *product_risks(spec), *path_risks(spec))
    return Examination(
        resource=None if problems else reading.resource,
        problems=first_of(problems),
        warnings=first_of(warnings),
        memory=memory,
        ignored=tuple(warning.field for warning in reading.ignored),
        rendered=None if problems else rendered,
    )


def _rendered(resource: PDInference, settings: RenderSettings) -> tuple[Rendered | None, tuple[Problem, ...]]:
    """The children, or the parts of pods that the API server would reject only once the resource is stored."""
    try:
        return render(resource, settings), ()
    except InvalidResourceError as error:
        return None, error.problems


def _problems(resource: PDInference, facts: Facts, settings: RenderSettings) -> Iterator[Problem]:
    yield from policy_problems(resource, settings)
    yield from option_problems(resource.spec)
    yield from api_server_problems(resource.spec)
    yield from tokenizer_problems(resource.spec)
    yield from compile_cache_problems(resource.spec)
    yield from loading_problems(resource.spec)
    yield from pair_problems(resource.spec)
    yield from batch_problems(resource.spec)
    yield from resource_problems(resource.spec)
    yield from autoscaler_problems(resource.spec)
    yield from scaling_problems(resource.spec)
    yield from lora_problems(resource)
    yield from expert_balance_problems(resource.spec, facts.shape)
    yield from expert_transport_problems(resource.spec, facts.shape)
    yield from queue_problems(resource.spec)
    yield from traces_problems(resource.spec)
    yield from facts.problems
    if facts.shape is not None:
        yield from model_problems(resource.spec, facts.shape)


def _warnings(resource: PDInference) -> Iterator[Problem]:
    yield from option_warnings(resource.spec)
    yield from api_server_warnings(resource.spec)
    yield from compile_cache_warnings(resource.spec)
    yield from expert_transport_warnings(resource.spec)
    yield from risks(resource.spec)
    yield from known_faults(resource.spec)
    yield from route_warnings(resource.spec.router)
