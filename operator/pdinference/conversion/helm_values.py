"""Values of Helm charts that start vLLM: vLLM's production-stack, llm-d's modelservice, and any with a container.

Tests: tests/conversion/test_kinds.py, tests/conversion/test_field_points.py
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pdinference.api.names import Role
from pdinference.conversion.kubernetes import container_of, manifest_starts
from pdinference.conversion.launch import Launch, Remark
from pdinference.conversion.model_sources import source_of
from pdinference.conversion.pod_templates import PodTemplate
from pdinference.conversion.programs import Context, container_starts
from pdinference.conversion.yaml_values import mapping, mappings, number, text, texts

_STACK, _LLM_D = "servingEngineSpec", "modelArtifacts"
_STACK_OPTIONS = {
    "maxModelLen": "--max-model-len",
    "dtype": "--dtype",
    "tensorParallelSize": "--tensor-parallel-size",
    "pipelineParallelSize": "--pipeline-parallel-size",
    "maxNumSeqs": "--max-num-seqs",
    "gpuMemoryUtilization": "--gpu-memory-utilization",
    "maxLoras": "--max-loras",
}
_STACK_SWITCHES = {
    "enableChunkedPrefill": "enable-chunked-prefill",
    "enablePrefixCaching": "enable-prefix-caching",
}
_STACK_TAKEN = frozenset(
    [
        "name",
        "repository",
        "tag",
        "modelURL",
        "replicaCount",
        "requestCPU",
        "requestMemory",
        "limitCPU",
        "limitMemory",
        "requestGPU",
        "requestGPUType",
        "vllmConfig",
        "env",
        "envFromSecret",
        "hf_token",
        "nodeSelector",
        "tolerations",
        "enableLoRA",
        "enableTool",
        "toolCallParser",
        "lmcacheConfig",
        "chatTemplate",
        "runtimeClassName",
        "priorityClassName",
        "nodeSelectorTerms",
    ]
)
_STACK_REASONS = {
    **dict.fromkeys(
        ("pvcStorage", "pvcAccessMode", "storageClass", "pvcMatchLabels"),
        "spec.model.cache stores the model on a claim or on each node.",
    ),
    "raySpec": "The operator starts the ranks and nodes of an instance itself, without Ray.",
    "initContainer": "Add it to podTemplate of the role if pods still need it.",
}
_OTHER = "The chart's value has no field here. Use podTemplate of the role if pods still need it."
_LMCACHE = (
    "LMCache needs a cache server here: transfer.connector LMCache with lmCache.remoteUrl. For P and D, Nixl needs "
    "nothing else, and kvTiers keep KV cache in CPU memory and on disk."
)
_VLLM_SERVE = "vllmServe"


def is_values(document: Any) -> bool:
    """Whether a document has values of a chart rather than a Kubernetes object or a compose file."""
    return isinstance(document, Mapping) and "kind" not in document and "services" not in document


def values_starts(document: Mapping[str, Any], context: Context) -> list[Launch]:
    """All launches of vLLM that a chart makes of these values."""
    if isinstance(document.get(_STACK), Mapping):
        stack = document[_STACK]
        models = list(mappings(stack.get("modelSpec")))
        return [_of_stack(stack, model) for model in models if text(model.get("modelURL"))]
    if isinstance(document.get(_LLM_D), Mapping):
        return list(_of_llm_d(document, context))
    return manifest_starts([document], context) or list(_containers(document, (), context))


def _of_stack(stack: Mapping[str, Any], model: Mapping[str, Any]) -> Launch:
    """A launch of production-stack (helm/templates/deployment-vllm-multi.yaml)."""
    pod = {
        name: value
        for name in ("nodeSelector", "tolerations", "runtimeClassName", "priorityClassName")
        if (value := model.get(name) or stack.get(name))
    }
    template = PodTemplate({}, (_STACK, f"modelSpec[{text(model.get('name')) or ''}]"), (model,), pod)
    image = ":".join(filter(None, (text(model.get("repository")), text(model.get("tag")))))
    container = {"image": image or None, "env": _stack_environment(stack, model), "resources": _stack_resources(model)}
    launch = container_of(template, {"name": model.get("name"), **container}, {}).around(
        Launch(tuple(_stack_arguments(model)))
    )
    settings = {**launch.settings, **_stack_replicas(model)}
    remarks = (*launch.remarks, *_stack_remarks(model))
    return replace(launch, settings=settings, remarks=remarks, name=text(model.get("name")) or "")


def _stack_replicas(model: Mapping[str, Any]) -> dict[str, Any]:
    replicas = number(model.get("replicaCount"))
    return {} if replicas in {None, 1} else {"role.replicas": replicas}


def _stack_arguments(model: Mapping[str, Any]) -> Iterator[str]:
    config = mapping(model.get("vllmConfig"))
    yield text(model.get("modelURL")) or ""
    if model.get("enableLoRA") is True:
        yield "--enable-lora"
    if model.get("enableTool") is True:
        yield "--enable-auto-tool-choice"
    if parser := text(model.get("toolCallParser")):
        yield from ("--tool-call-parser", parser)
    for name, switch in _STACK_SWITCHES.items():
        if isinstance(config.get(name), bool):
            yield f"--{switch}" if config[name] else f"--no-{switch}"
    for name, option in _STACK_OPTIONS.items():
        if (value := text(config.get(name))) is not None:
            yield from (option, value)
    yield from texts(config.get("extraArgs"))
    if template := text(model.get("chatTemplate")):
        yield from ("--chat-template", template)
    cache = mapping(model.get("lmcacheConfig"))
    if cache.get("enabled") is True and (role := text(cache.get("kvRole"))):
        # The chart writes LMCacheConnectorV1, which passes KV cache by NIXL with enablePD.
        yield from ("--kv-transfer-config", f'{{"kv_connector": "NixlConnector", "kv_role": "{_word(role)}"}}')


def _word(value: str) -> str:
    return "".join(character for character in value if character.isalnum() or character == "_")


def _stack_environment(stack: Mapping[str, Any], model: Mapping[str, Any]) -> list[Any]:
    found = list(mappings(model.get("env")))
    for name, given in (("HF_TOKEN", model.get("hf_token")), ("VLLM_API_KEY", stack.get("vllmApiKey"))):
        secret = mapping(given)
        if secret:
            reference = {"name": secret.get("secretName"), "key": secret.get("secretKey")}
            found.append({"name": name, "valueFrom": {"secretKeyRef": reference}})
        elif text(given):
            found.append({"name": name, "value": text(given)})
    return found


def _stack_resources(model: Mapping[str, Any]) -> dict[str, Any]:
    named = {"cpu": "CPU", "memory": "Memory"}
    amounts = {
        kind: {
            name: value
            for name, part in named.items()
            if (value := text(model.get(f"{kind.removesuffix('s')}{part}"))) is not None
        }
        for kind in ("requests", "limits")
    }
    device = text(model.get("requestGPUType"))
    if device:
        amounts["limits"][device] = text(model.get("requestGPU")) or "1"
    return amounts


def _stack_remarks(model: Mapping[str, Any]) -> Iterator[Remark]:
    for key in model:
        if key not in _STACK_TAKEN:
            yield Remark(f"modelSpec.{key}", _STACK_REASONS.get(str(key), _OTHER))
    known = _STACK_OPTIONS.keys() | _STACK_SWITCHES.keys() | {"extraArgs"}
    for key in mapping(model.get("vllmConfig")):
        if key not in known:
            yield Remark(f"modelSpec.vllmConfig.{key}", _OTHER)
    for key in mapping(model.get("lmcacheConfig")):
        if key not in {"enabled", "kvRole"}:
            yield Remark(f"modelSpec.lmcacheConfig.{key}", _LMCACHE)
    if mapping(model.get("lmcacheConfig")).get("enabled") is True:
        yield Remark("modelSpec.lmcacheConfig.enabled", _LMCACHE)


def _of_llm_d(document: Mapping[str, Any], context: Context) -> Iterator[Launch]:
    """The launches of llm-d's modelservice: decode, and prefill unless it is turned off."""
    parts = [(name, mapping(document.get(name))) for name in ("prefill", "decode")]
    created = [(name, part) for name, part in parts if part and part.get("create", True) is not False]
    for name, part in created:
        for container in mappings(part.get("containers")):
            launch = _llm_d_start(document, name, part, container, context)
            if launch is not None:
                role = Role.PARAMETER if name == "prefill" else Role.DECODE
                yield replace(launch, role=role if len(created) > 1 else None)


def _llm_d_start(
    document: Mapping[str, Any], name: str, part: Mapping[str, Any], container: Mapping[str, Any], context: Context
) -> Launch | None:
    artifacts = mapping(document.get(_LLM_D))
    argument, folders, more = source_of(text(artifacts.get("uri")) or "")
    pod = {**mapping(part.get("extraConfig")), **_accelerators(part)}
    template = PodTemplate({}, (name,), (document, part), pod)
    made = container_of(template, {key: value for key, value in container.items() if key not in _LLM_D_KEYS}, {})
    if container.get("modelCommand") == "custom":
        found = container_starts(made, context)
        if not found:
            return None
        base = found[0]
    else:
        base = made.around(Launch((argument, *more, *_llm_d_options(artifacts, part), *made.command)))
    secrets = dict(base.secrets)
    if secret := text(artifacts.get("authSecretName")):
        secrets["HF_TOKEN"] = (secret, "HF_TOKEN")
    remarks = [Remark(f"{name}.{key}", _OTHER) for key in part if key not in _LLM_D_PART]
    served = text(artifacts.get("name")) or base.name
    return replace(
        base, secrets=secrets, folders=(*base.folders, *folders), remarks=(*base.remarks, *remarks), name=served or ""
    )


_LLM_D_KEYS = frozenset({"modelCommand", "mountModelVolume"})
_LLM_D_PART = frozenset(
    {"create", "replicas", "parallelism", "containers", "acceleratorTypes", "extraConfig", "annotations", "monitoring"}
)


def _llm_d_options(artifacts: Mapping[str, Any], part: Mapping[str, Any]) -> Iterator[str]:
    if name := text(artifacts.get("name")):
        yield from ("--served-model-name", name)
    parallelism = mapping(part.get("parallelism"))
    for key, option in (("tensor", "--tensor-parallel-size"), ("data", "--data-parallel-size")):
        if (size := number(parallelism.get(key))) is not None and size > 1:
            yield from (option, str(size))


def _accelerators(part: Mapping[str, Any]) -> dict[str, Any]:
    types = mapping(part.get("acceleratorTypes"))
    key, values = text(types.get("labelKey")), texts(types.get("labelValues"))
    if not key or not values:
        return {}
    expression = {"key": key, "operator": "In", "values": values}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def _containers(node: Any, path: tuple[str, ...], context: Context) -> Iterator[Launch]:
    """Launches of maps with a command, beside an image or within one, in the values of any chart."""
    if isinstance(node, list):
        for at, item in enumerate(node):
            yield from _containers(item, (*path, str(at)), context)
    if not isinstance(node, Mapping):
        return
    if node.get("command") or node.get("args"):
        template = PodTemplate({}, path, (node,), {})
        made = container_of(template, {**node, "image": _image(node)}, {})
        found = container_starts(made, context)
        yield from found
        if found:
            return
    for key, value in node.items():
        yield from _containers(value, (*path, str(key)), context)


def _image(node: Mapping[str, Any]) -> str | None:
    given = node.get("image", node)
    if isinstance(given, Mapping):
        joined = ":".join(filter(None, (text(given.get("repository")), text(given.get("tag")))))
        return joined or None
    return text(given)
