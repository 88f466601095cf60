"""Converts KServe's LLMInferenceService, whose controller writes most of vLLM's command line.

Tests: tests/conversion/test_kinds.py, tests/conversion/test_field_points.py
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pdinference.api.names import Role
from pdinference.conversion.config_maps import ConfigMaps
from pdinference.conversion.kubernetes import container_of
from pdinference.conversion.launch import Launch, Remark, Unresolved
from pdinference.conversion.model_sources import MOUNT, source_of
from pdinference.conversion.pod_templates import PodTemplate
from pdinference.conversion.programs import Context, container_starts
from pdinference.conversion.script import Script
from pdinference.conversion.yaml_values import mapping, mappings, number, text

KIND = "LLMInferenceService"
_ADDITIONAL = "VLLM_ADDITIONAL_ARGS"
_TEMPLATE = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_PARALLELISM = {
    "tensor": "--tensor-parallel-size",
    "pipeline": "--pipeline-parallel-size",
    "data": "--data-parallel-size",
}
_SPEC = frozenset({"model", "replicas", "parallelism", "template", "worker", "prefill"})
_REASONS = {
    "router": "The operator has a router of its own. router.service and router.route expose it.",
    "scaling": "Use autoscaling of the role.",
    "baseRefs": "Settings of an LLMInferenceServiceConfig are not read here. Add those that you need.",
}
_NO_FIELD = "The resource has no field for it."
_PARALLELISM_LEFT = "The operator places the ranks of an instance itself, by parallelism of the role."


def service_starts(document: Mapping[str, Any], maps: ConfigMaps, context: Context) -> list[Launch]:
    """The launches of a service: one, or one for each of prefill and decode."""
    spec = mapping(document.get("spec"))
    prefill = mapping(spec.get("prefill"))
    if not prefill:
        return [_start(document, spec, ("spec",), maps, context)]
    p = _start(document, prefill, ("spec", "prefill"), maps, context)
    return [
        replace(p, role=Role.PARAMETER),
        replace(_start(document, spec, ("spec",), maps, context), role=Role.DECODE),
    ]


def _start(
    document: Mapping[str, Any], part: Mapping[str, Any], path: tuple[str, ...], maps: ConfigMaps, context: Context
) -> Launch:
    pod = mapping(part.get("template"))
    template = PodTemplate(document, (*path, "template"), (document, part), pod)
    main = next((each for each in mappings(pod.get("containers")) if each.get("name") in {"main", None}), {})
    container = container_of(template, main, maps)
    found = container_starts(container, context) if main.get("command") else []
    base = found[0] if found else container.around(Launch((MOUNT, *map(_rendered, container.command))))
    return _with_model(base, document, part, preset=not found)


def _with_model(launch: Launch, document: Mapping[str, Any], part: Mapping[str, Any], *, preset: bool) -> Launch:
    """A launch with the model, the parallelism and further arguments of the service."""
    model = mapping(mapping(document.get("spec")).get("model"))
    argument, folders, more = source_of(text(model.get("uri")) or "")
    arguments = [_rendered(word) for word in launch.arguments]
    if MOUNT in arguments and argument != MOUNT:
        arguments = [argument if word == MOUNT else word for word in arguments]
    if preset:
        arguments += [*more, *_named(model), *_parallelism(part)]
    extra = launch.environment.get(_ADDITIONAL)
    if extra is not None and preset:
        arguments += [word for command in Script({}).commands(extra) for word in command.words]
    return replace(
        launch,
        arguments=tuple(arguments),
        environment={name: value for name, value in launch.environment.items() if name != _ADDITIONAL},
        folders=(*launch.folders, *folders),
        settings={**launch.settings, **_nodes(part)},
        remarks=(*launch.remarks, *_remarks(document, part, model)),
    )


def _named(model: Mapping[str, Any]) -> Iterator[str]:
    if name := text(model.get("name")):
        yield from ("--served-model-name", name)
    adapters = list(mappings(mapping(model.get("lora")).get("adapters")))
    if adapters:
        yield from ("--enable-lora", "--lora-modules")
        for adapter in adapters:
            uri = (text(adapter.get("uri")) or "").removeprefix("hf://")
            yield f"{text(adapter.get('name')) or ''}={uri}"


def _parallelism(part: Mapping[str, Any]) -> Iterator[str]:
    parallelism = mapping(part.get("parallelism"))
    for name, option in _PARALLELISM.items():
        if (size := number(parallelism.get(name))) is not None:
            yield from (option, str(size))
    if parallelism.get("expert") is True:
        yield "--enable-expert-parallel"


def _nodes(part: Mapping[str, Any]) -> dict[str, Any]:
    """The number of nodes of an instance, by the ranks of one."""
    parallelism = mapping(part.get("parallelism"))
    data, local = number(parallelism.get("data")), number(parallelism.get("dataLocal"))
    if data and local and data % local == 0 and data > local:
        return {"role.parallelism.nodes": data // local}
    if part.get("worker") and (pipeline := number(parallelism.get("pipeline"))):
        return {"role.parallelism.nodes": pipeline}
    return {}


def _remarks(document: Mapping[str, Any], part: Mapping[str, Any], model: Mapping[str, Any]) -> Iterator[Remark]:
    for key in mapping(document.get("spec")):
        if key not in _SPEC:
            yield Remark(f"spec.{key}", _REASONS.get(str(key), _NO_FIELD))
    for key in mapping(part.get("parallelism")):
        if key not in {*_PARALLELISM, "expert", "dataLocal"}:
            yield Remark(f"parallelism.{key}", _PARALLELISM_LEFT)
    for key in model:
        if key not in {"uri", "name", "lora"}:
            yield Remark(f"spec.model.{key}", _NO_FIELD)


def _rendered(word: str) -> str:
    """A word, marked if KServe would fill in a part of it."""
    return Unresolved(word) if _TEMPLATE.search(word) else word
