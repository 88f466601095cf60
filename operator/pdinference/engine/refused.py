"""vLLM options and variables that no resource may set, each with an alternative or the reason.

They open ports, disclose secrets, or conflict with the operator. A check rejects them, because the size of the CRD is
limited.
"""

from collections.abc import Collection

from pdinference.api.v1alpha1.engine import OWNED_ARGUMENTS, OWNED_ENVIRONMENT

_ENABLE, _DISABLE = "enable-", "disable-"
_TLS = "the router and the probes call vLLM without TLS; for clients, use spec.router.tls"
_NODES = "the operator starts the nodes of an instance; use parallelism of the role"
_RANKS = "the operator starts the ranks of an instance; use parallelism.data of the role"
_DEVICES = (
    "Kubernetes assigns devices to pods; in the role, set their number with parallelism, the product with "
    "accelerator.products, and exact devices with accelerator.devices"
)
_CORS = (
    "browsers ask the router for these rights, and it gives none; add the headers in front of it, with the CORS filter "
    "of a Gateway or the annotations of an Ingress, or let the web server of the page call the model"
)
_PORT = "Services and NetworkPolicies depend on the port of vLLM"

REFUSED_ARGUMENTS: dict[str, str] = {
    "api-key": "everyone who can read the resource could read the key; name a Secret with keys in spec.router.apiKeys",
    "ssl-keyfile": _TLS,
    "ssl-certfile": _TLS,
    "ssl-ca-certs": _TLS,
    "ssl-cert-reqs": _TLS,
    "ssl-ciphers": _TLS,
    "enable-ssl-refresh": _TLS,
    "uds": _PORT,
    "grpc": _PORT,
    "grpc-port": _PORT,
    "disable-log-stats": "vLLM would serve no metrics, and router, operator and dashboard read them",
    "root-path": "the router and the probes call vLLM at the root path; rewrite paths in front of the router",
    "allowed-origins": _CORS,
    "allowed-methods": _CORS,
    "allowed-headers": _CORS,
    "allow-credentials": _CORS,
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
    "kv-events-config": "it opens a port that publishes the tokens of prompts to every client",
    "allowed-local-media-path": "clients could read files of the pod; send media inline or by URL",
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
"""Variables that select devices: of vLLM's platforms (`device_control_env_var` in vllm/platforms), of their libraries,
and of container runtimes. A runtime may add all devices of the node to a container with such a variable, so sidecars
may not set them either."""

REFUSED_ENVIRONMENT: dict[str, str] = (
    OWNED_ENVIRONMENT
    | DEVICE_ENVIRONMENT
    | {
        "HUGGING_FACE_HUB_TOKEN": "use spec.model.source.huggingFace.tokenSecret",
        "HUGGINGFACE_HUB_TOKEN": "use spec.model.source.huggingFace.tokenSecret",
        "HF_TOKEN_PATH": "use spec.model.source.huggingFace.tokenSecret",
        "MODELSCOPE_API_TOKEN": "everyone who can read the resource could read the token",
        "VLLM_ENABLE_RESPONSES_API_STORE": "each D pod would keep all responses in its memory, and the router fetches "
        "none: clients send the whole conversation in `input`",
        "VLLM_ALLOW_INSECURE_SERIALIZATION": "every client of a vLLM socket could run code",
    }
)
"""Variables that neither fields nor overlays may set on the vLLM container."""


_SWITCHES = {name: why for name, why in (OWNED_ARGUMENTS | REFUSED_ARGUMENTS).items() if name.startswith(_ENABLE)}
"""Switches that args cannot turn off under another name either."""


def _positive(name: str) -> str:
    """The switch that an option turns off under another name.

    Source: `EnableDisableAction` in vllm/utils/argparse_utils.py of vLLM 0.33, which calls the opposite of
    `--enable-lora` `--disable-lora`. Earlier releases call it `--no-enable-lora`.
    """
    return f"{_ENABLE}{name.removeprefix(_DISABLE)}" if name.startswith(_DISABLE) else name


def refused_argument(name: str, known: Collection[str]) -> str | None:
    """Why an option is rejected; None if it is not.

    Args:
        name: Name of the option in the spec.
        known: Options of vLLM. An unknown name is rejected if argparse could expand it to a rejected option.
    """
    plain = name.removeprefix("no-")
    if plain in REFUSED_ARGUMENTS:
        return REFUSED_ARGUMENTS[plain]
    if (positive := _positive(plain)) in _SWITCHES:
        return _SWITCHES[positive]
    if name in known:
        return None
    return next((why for option, why in REFUSED_ARGUMENTS.items() if option.startswith(plain)), None)
