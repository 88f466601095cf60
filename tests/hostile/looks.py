"""Runs everything that the operator does with an untrusted document: examination, review and rendering."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from io import StringIO
from typing import Any

from rich.console import Console

from pdinference.admission.review import API_VERSION, reviewed
from pdinference.api.names import ENGINE_ROLES
from pdinference.api.v1alpha1 import PDBatch, PDInference
from pdinference.api.validation import Problem, read
from pdinference.checks import examine_any
from pdinference.checks.facts import Facts, facts_of
from pdinference.cli.plan.answer import PlanAnswer
from pdinference.cli.plan.table import print_plan
from pdinference.engine.batch import ServiceAccess
from pdinference.manifests import KedaSettings, RenderSettings, render
from pdinference.manifests.batch import render_batch, render_output
from pdinference.memory import (
    Inputs,
    ModelFacts,
    UnusableConfigError,
    UnusableSpecError,
    compact_config,
    model_facts,
    plan_role,
)
from pdinference.memory.model.quantization import quantization_of

Document = dict[str, Any]
SETTINGS = RenderSettings(keda=KedaSettings(prometheus="http://prometheus.monitoring:9090"))
_MOST_PROBLEMS, _LONGEST = 51, 2000


def problems_of(document: Document, *, model: Any = None) -> tuple[Problem, ...]:
    """Examine a document in every way, and return its problems.

    Args:
        document: As the API server or a YAML file gives it.
        model: What the status says of its model.

    Raises:
        AssertionError: The webhook and an examination differ, or what comes out is not what it should be.
    """
    found, stored = (
        examine_any(document, SETTINGS, known=lambda _: model, admitted=admitted) for admitted in (False, True)
    )
    assert len(found.problems) <= _MOST_PROBLEMS
    for said in map(str, (*found.problems, *found.warnings, *stored.problems, *stored.warnings)):
        assert 0 < len(said) <= _LONGEST
        said.encode()
    allowed = _review(document, {**document, "status": {"model": model}, "spec": {"before": 0}})
    if not _goes(document):
        assert allowed is not bool(stored.problems), "the webhook and the examination differ"
    _check_plan(document, model)
    for examination in (found, stored):
        resource = getattr(examination, "resource", None) or getattr(examination, "batch", None)
        if resource is None:
            assert examination.problems
        else:
            _check_objects(list(_rendered(resource)))
    return found.problems


def _check_plan(document: Document, model: Any) -> None:
    """Run `pdinference plan`, also for documents that the memory check rejects."""
    reading = read(document)
    resource = None if reading.problems else reading.resource  # the command refuses the others first
    facts = facts_of(resource.spec, model) if resource is not None else Facts()
    if resource is None or facts.shape is None:
        return
    inputs = Inputs(resource.spec, facts.shape, facts.checkpoint)
    try:
        answer = PlanAnswer(resource, inputs, {role: plan_role(inputs, role) for role in ENGINE_ROLES})
    except UnusableSpecError:
        return
    json.dumps(answer.as_json(), allow_nan=False).encode()
    print_plan(answer, Console(file=StringIO(), width=120, highlight=False))


def _goes(document: Document) -> bool:
    """Whether an object is being deleted. Such objects can always be changed."""
    metadata = document.get("metadata")
    return isinstance(metadata, dict) and "deletionTimestamp" in metadata


def read_config(config: Any) -> None:
    """Read a config.json as the model Job and the planner do: only a config that is unusable is refused."""
    quantization_of(config.get("quantization_config"))
    compact = compact_config(config)
    json.dumps(compact)
    try:
        facts = model_facts(config)
    except UnusableConfigError as error:
        assert 0 < len(str(error)) < _LONGEST  # noqa: PT017
        return
    kept = model_facts(compact)
    assert _without_reasons(kept) == _without_reasons(facts), "what a status keeps is read differently"


def _without_reasons(facts: ModelFacts) -> ModelFacts:
    """A status does not keep what was wrong, but that something was."""
    found = facts.quantization
    quantization = replace(found, unfit="unfit" if found.unfit else "") if found else None
    return replace(facts, quantization=quantization, unfit=("unfit",) if facts.unfit else ())


def _review(new: Document, old: Document | None) -> bool:
    request = {"uid": "u", "operation": "UPDATE" if old else "CREATE", "object": new, "oldObject": old}
    review = {"apiVersion": API_VERSION, "kind": "AdmissionReview", "request": request}
    answers = [reviewed(review, SETTINGS, early=early) for early in (True, False)]
    for answer in answers:
        json.dumps(answer)
    return bool(answers[1]["response"]["allowed"])


def _rendered(resource: PDInference | PDBatch) -> Iterator[Mapping[str, Any]]:
    if isinstance(resource, PDInference):
        yield from render(resource, SETTINGS).objects
        return
    yield from render_batch(resource, ServiceAccess("http://llama.models:8000", "llama"), SETTINGS)
    if (output := render_output(resource)) is not None:
        yield output


def _check_objects(objects: list[Mapping[str, Any]]) -> None:
    assert objects
    json.dumps(objects, allow_nan=False).encode()
    for manifest in objects:
        assert {"apiVersion", "kind", "metadata"} <= manifest.keys()
        _check_types(manifest)


def _check_types(value: Any) -> None:
    if isinstance(value, dict):
        for key, member in value.items():
            assert type(key) is str, key
            _check_types(member)
    elif isinstance(value, list):
        for item in value:
            _check_types(item)
    else:
        assert type(value) in {str, int, float, bool, type(None)}, value
