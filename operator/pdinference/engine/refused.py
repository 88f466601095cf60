"""Options and variables of vLLM that no resource may set: they open ports, show secrets, or leave the operator's plan.

Each with what to do instead, or why not. They are refused by a check and not by the schema, whose size is limited.
"""

from collections.abc import Collection

from pdinference.api.v1alpha1.engine import OWNED_ENVIRONMENT

_TLS = "the router and the probes call vLLM without TLS; end TLS in front of the router"
_NODES = "the operator starts the nodes of an instance; use parallelism of the role"
_RANKS = "the operator starts the ranks of an instance; use parallelism.data of the role"
_DEVICES = (
    "Kubernetes gives each pod its devices; in the role, use parallelism for how many, accelerator.products for the "
    "product and accelerator.devices for exact devices"
)
_PORT = "vLLM listens on the port that Services and NetworkPolicies name"

REFUSED_ARGUMENTS: dict[str, str] = {
    "api-key": "a key in plain text would be readable to all who can read the resource, and the router has none; check "
    "keys in front of the router",
    "ssl-keyfile": _TLS,
    "ssl-certfile": _TLS,
    "ssl-ca-certs": _TLS,
    "ssl-cert-reqs": _TLS,
    "ssl-ciphers": _TLS,
    "enable-ssl-refresh": _TLS,
    "uds": _PORT,
    "grpc": _PORT,
    "grpc-port": _PORT,
    "root-path": "the router and the probes call vLLM at the root; change paths in front of the router",
    "headless": _NODES,
    "node-rank": _NODES,
    "master-addr": _NODES,
    "master-port": _NODES,
    "data-parallel-address": _RANKS,
    "data-parallel-rpc-port": _RANKS,
    "data-parallel-rank": _RANKS,
    "data-parallel-start-rank": _RANKS,
    "data-parallel-size-local": _RANKS,
    "data-parallel-backend": _RANKS,
    "data-parallel-external-lb": _RANKS,
    "data-parallel-hybrid-lb": _RANKS,
    "data-parallel-multi-port-external-lb": _RANKS,
    "data-parallel-supervisor-port": _RANKS,
    "kv-events-config": "it opens a port that publishes the tokens of prompts to whoever connects",
    "allowed-local-media-path": "every client could read files of the pod; send media inline or by URL",
}

DEVICE_ENVIRONMENT: dict[str, str] = dict.fromkeys(
    (
        "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_IMEX_CHANNELS",
        "NVIDIA_MIG_CONFIG_DEVICES",
        "NVIDIA_MIG_MONITOR_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "AMD_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
        "ASCEND_RT_VISIBLE_DEVICES",
        "ASCEND_VISIBLE_DEVICES",
        "HABANA_VISIBLE_DEVICES",
        "HABANA_VISIBLE_MODULES",
        "MUSA_VISIBLE_DEVICES",
        "MTHREADS_VISIBLE_DEVICES",
        "NEURON_RT_VISIBLE_CORES",
        "ONEAPI_DEVICE_SELECTOR",
        "TPU_VISIBLE_CHIPS",
        "TPU_VISIBLE_DEVICES",
        "ZE_AFFINITY_MASK",
    ),
    _DEVICES,
)
"""Variables that choose devices: of vLLM's platforms (`device_control_env_var` in vllm/platforms), of the libraries
that these use, and of container runtimes. For such a variable, a runtime may give a container all devices of the node.
So no side-car may set them either."""

REFUSED_ENVIRONMENT: dict[str, str] = (
    OWNED_ENVIRONMENT
    | DEVICE_ENVIRONMENT
    | {
        "HUGGING_FACE_HUB_TOKEN": "use spec.model.source.huggingFace.tokenSecret",
        "HUGGINGFACE_HUB_TOKEN": "use spec.model.source.huggingFace.tokenSecret",
        "HF_TOKEN_PATH": "use spec.model.source.huggingFace.tokenSecret",
        "MODELSCOPE_API_TOKEN": "a token in plain text would be readable to all who can read the resource",
        "VLLM_ALLOW_INSECURE_SERIALIZATION": "whoever reaches a socket of vLLM could run code",
    }
)
"""Of vLLM's container, by a field or by an overlay."""


def refused_argument(name: str, known: Collection[str]) -> str | None:
    """Why an option is refused; None where it is not.

    Args:
        name: As the user writes it.
        known: Options of vLLM. What begins one that is refused and is none of these, argparse could take for it.
    """
    plain = name.removeprefix("no-")
    if plain in REFUSED_ARGUMENTS:
        return REFUSED_ARGUMENTS[plain]
    if name in known:
        return None
    return next((why for option, why in REFUSED_ARGUMENTS.items() if option.startswith(plain)), None)
