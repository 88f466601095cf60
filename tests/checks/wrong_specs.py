"""Invalid specs, each with the fields that must be reported: all at once, and no others."""

from dataclasses import dataclass
from typing import Any

from tests.memory.configs import LLAMA_8B

SOURCE = {"source": {"path": "/models/tiny"}}
KNOWN = {**SOURCE, "architecture": {"config": LLAMA_8B}}
L4 = {"accelerator": {"products": ["NVIDIA-L4"]}}


@dataclass(frozen=True)
class Wrong:
    """One of them.

    Attributes:
        spec: Merged over the least that a resource needs.
        fields: What must be named, in this order.
        name: Of the resource, where that is what is wrong.
    """

    spec: Any
    fields: tuple[str, ...]
    name: str = ""


def wrong(*fields: str, **spec: Any) -> Wrong:
    return Wrong({"model": SOURCE, **spec}, tuple(f"spec.{field}" for field in fields))


def model(*fields: str, **more: Any) -> Wrong:
    return wrong(*fields, model={**SOURCE, **more})


WRONG = {
    # Types, which the API server compares first.
    "word-for-number": wrong("decode.replicas", decode={"replicas": "two"}),
    "number-as-text": wrong("decode.replicas", decode={"replicas": "2"}),
    "fraction": wrong("parameter.parallelism.tensor", parameter={"parallelism": {"tensor": 1.5}}),
    "text-for-boolean": model("model.trustRemoteCode", trustRemoteCode="yes"),
    "text-for-fraction": wrong("engine.gpuMemoryUtilization", engine={"gpuMemoryUtilization": "0.9"}),
    "number-for-text": wrong("engine.env.VLLM_LOGGING_LEVEL", engine={"env": {"VLLM_LOGGING_LEVEL": 1}}),
    "list-for-object": wrong("decode", decode=[1]),
    "no-spec": Wrong({}, ("spec.model",)),
    "spec-is-text": Wrong("serve llama", ("spec",)),
    # Bounds and patterns.
    "negative": wrong("decode.replicas", decode={"replicas": -1}),
    "too-many": wrong("parameter.replicas", parameter={"replicas": 5000}),
    "more-than-all": wrong("engine.gpuMemoryUtilization", engine={"gpuMemoryUtilization": 7}),
    "too-long": model("model.name", name="n" * 254),
    "list-too-long": wrong(
        "parameter.parallelism.layerPartition", parameter={"parallelism": {"layerPartition": [1] * 65}}
    ),
    "no-such-choice": wrong("rollout.strategy", rollout={"strategy": "Slowly"}),
    "no-such-rank": model("model.lora.maxRank", lora={"maxRank": 7}),
    "image-with-space": wrong("engine.image", engine={"image": "vllm latest"}),
    "size": wrong("decode.resources.requests.cpu", decode={"resources": {"requests": {"cpu": "lots"}}}),
    "label": wrong("decode.placement.nodeSelector.a b", decode={"placement": {"nodeSelector": {"a b": "c"}}}),
    "twice": wrong("decode.accelerator.products", decode={"accelerator": {"products": ["NVIDIA-L4", "NVIDIA-L4"]}}),
    "name": Wrong({"model": SOURCE}, ("metadata.name",), name="llama.v2"),
    # Rules between fields.
    "two-sources": Wrong({"model": {"source": {"path": "/m", "image": {"reference": "m:1"}}}}, ("spec.model.source",)),
    "no-source": Wrong({"model": {"source": {}}}, ("spec.model.source",)),
    "decode-ranks": wrong("decode.parallelism.tensor", parameter={"parallelism": {"tensor": 2}}),
    "decode-stages": wrong("decode.parallelism.pipeline", decode={"parallelism": {"pipeline": 2}}),
    "devices-and-nodes": wrong("parameter.parallelism.nodes", parameter={"parallelism": {"pipeline": 2, "nodes": 3}}),
    "gpus": wrong(
        "decode.resources", decode={"parallelism": {"tensor": 4}, "resources": {"limits": {"nvidia.com/gpu": 2}}}
    ),
    "adapters": model("model.lora.adapters", lora={"adapters": [{"name": "sql", "path": "/a"}] * 2}),
    # What needs more than the document.
    "heads": wrong(
        "parameter.parallelism.tensor",
        "decode.parallelism.tensor",
        model=KNOWN,
        parameter={"parallelism": {"tensor": 3}},
        decode={"parallelism": {"tensor": 3}},
    ),
    "memory": wrong("parameter", "decode", model=KNOWN, parameter=L4, decode=L4),
    "length": wrong("model.maxModelLength", model={**KNOWN, "maxModelLength": 1000000}),
    "template": model("model.chatTemplate.inline", chatTemplate={"inline": "{% for m in messages %}"}),
    "owned": wrong("decode.args", decode={"args": {"kv-transfer-config": "{}"}}),
    "unknown-option": wrong("engine.args.max-logprob", engine={"args": {"max-logprob": 5}}),
    "devices-by-variable": wrong(
        "parameter.env.CUDA_VISIBLE_DEVICES", parameter={"env": {"CUDA_VISIBLE_DEVICES": "0,1"}}
    ),
    "host-path": Wrong({"model": {"source": {"hostPath": {"path": "/etc"}}}}, ("spec.model.source.hostPath.path",)),
    "overlay": wrong("decode.podTemplate.spec.hostNetwork", decode={"podTemplate": {"spec": {"hostNetwork": True}}}),
    "limit": wrong(
        "router.resources.requests.cpu", router={"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}
    ),
    # Several at once.
    "memory-and-more": wrong(
        "decode.replicas",
        "engine.args.nonsense",
        "parameter",
        "decode",
        model=KNOWN,
        engine={"args": {"nonsense": 1}},
        parameter=L4,
        decode={**L4, "replicas": "2"},
    ),
    "source-and-option": Wrong(
        {"model": {}, "engine": {"args": {"nonsense": 1}}}, ("spec.model.source", "spec.engine.args.nonsense")
    ),
    "everything": Wrong(
        {
            "model": {
                **SOURCE,
                "trustRemoteCode": 1,
                "lora": {"maxActive": 4, "adapters": [{"name": "a b", "path": "/a"}]},
            },
            "engine": {"gpuMemoryUtilization": 2, "args": {"nonsense": 1, "max-cpu-loras": 2}},
            "parameter": {"parallelism": {"nodes": 2}, "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
            "decode": {"replicas": "2", "parallelism": {"pipeline": 2}},
        },
        (
            "spec.model.trustRemoteCode",
            "spec.model.lora.adapters[0].name",
            "spec.engine.gpuMemoryUtilization",
            "spec.decode.replicas",
            "spec.parameter.parallelism.nodes",
            "spec.decode.parallelism.pipeline",
            "spec.engine.args.nonsense",
            "spec.parameter.resources.requests.cpu",
            "spec.engine.args.max-cpu-loras",
        ),
    ),
}
