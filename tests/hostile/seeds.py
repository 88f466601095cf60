"""Seeds of mutations: all examples, all fields, and model configs with all quantization methods."""

import json
from typing import Any

import yaml

from tests.conftest import REPOSITORY
from tests.memory import configs

Document = dict[str, Any]
KINDS = {"PDInference", "PDBatch"}

QUANTIZATIONS: list[Document] = [
    {"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": ["lm_head", "re:.*gate.*"]},
    {"quant_method": "gptq", "bits": 4, "group_size": -1, "desc_act": True},
    {"quant_method": "fp8", "weight_block_size": [128, 128], "ignored_layers": ["model.layers.0"]},
    {"quant_method": "bitsandbytes", "load_in_4bit": True, "llm_int8_skip_modules": ["lm_head"]},
    {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": {"num_bits": 8, "strategy": "block", "block_structure": [128, 128]}}},
        "ignore": ["re:.*lm_head", "model.layers.0.self_attn"],
        "kv_cache_scheme": {"num_bits": 8, "type": "float"},
    },
]


def resource(spec: Any, kind: str = "PDInference", **metadata: Any) -> Document:
    """A document with this spec."""
    return {
        "apiVersion": "pdinference.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": "llama", "namespace": "models", "uid": "6f1c", "generation": 1, **metadata},
        "spec": spec,
    }


def model_configs() -> list[Document]:
    """Configs of models, with and without quantisation, nested and not."""
    plain: list[Document] = [value for name, value in vars(configs).items() if name.isupper()]
    quantised = [config | {"quantization_config": each} for config in plain[:4] for each in QUANTIZATIONS]
    return [*plain, *quantised, {"model_type": "m", "text_config": plain[0], "vision_config": {"hidden_size": 1}}]


def planned(config: Document, **model: Any) -> Document:
    """A resource whose model has this config, on devices where it does not fit, so that changes are looked for."""
    small = {"accelerator": {"products": ["NVIDIA-L4"]}}
    source = {"source": {"path": "/models/a"}, "architecture": {"config": config}, **model}
    return resource({"model": source, "parameter": small, "decode": small})


def documents() -> list[Document]:
    """All that is mutated as a resource."""
    found = []
    for file in sorted((REPOSITORY / "examples").glob("*.yaml")):
        loaded = yaml.safe_load_all(file.read_text(encoding="utf-8"))
        found += [document for document in loaded if document and document.get("kind") in KINDS]
    fields = yaml.safe_load((REPOSITORY / "tests/manifests/every_field.yaml").read_text(encoding="utf-8"))
    found += [resource(spec) for spec in fields.values()]
    found += [planned(config) for config in model_configs()]
    separate: list[Document] = json.loads(json.dumps(found))  # aliases of YAML would be changed together
    return separate
