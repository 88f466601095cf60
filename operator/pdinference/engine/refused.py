"""vLLM options and variables that no resource may set, each with an alternative or the reason.

They open ports, disclose secrets, or conflict with the operator. A check rejects them, because the size of the CRD is
limited.

Tests: tests/checks/test_options.py, tests/manifests/test_pod_rules.py
"""

import re
from collections.abc import Collection, Iterable, Iterator

from pdinference.api.v1alpha1.engine import OWNED_ARGUMENTS, OWNED_ENVIRONMENT

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
        "NVIDIA_GDRCOPY",
        "NVIDIA_GDS",
        "NVIDIA_IMEX_CHANNELS",
        "NVIDIA_MIG_CONFIG_DEVICES",
        "NVIDIA_MIG_MONITOR_DEVICES",
        "NVIDIA_MOFED",
        "NVIDIA_NVSWITCH",
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "AMD_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
        "DOCKER_RESOURCE_GPU",
        "ASCEND_ALLOW_LINK",
        "ASCEND_RT_VISIBLE_DEVICES",
        "ASCEND_RUNTIME_MOUNTS",
        "ASCEND_RUNTIME_OPTIONS",
        "ASCEND_VISIBLE_DEVICES",
        "ASCEND_VNPU_SPECS",
        "CAMBRICON_VISIBLE_DEVICES",
        "ENFLAME_VISIBLE_DEVICES",
        "HABANA_VISIBLE_DEVICES",
        "HABANA_VISIBLE_MODULES",
        "ILUVATAR_COREX_VISIBLE_DEVICES",
        "IX_VISIBLE_DEVICES",
        "METAX_VISIBLE_DEVICES",
        "MLU_VISIBLE_DEVICES",
        "MUSA_VISIBLE_DEVICES",
        "MTHREADS_VISIBLE_DEVICES",
        "AWS_NEURON_VISIBLE_DEVICES",
        "NEURON_RT_VISIBLE_CORES",
        "ONEAPI_DEVICE_SELECTOR",
        "SYCL_DEVICE_FILTER",
        "TPU_VISIBLE_CHIPS",
        "TPU_VISIBLE_DEVICES",
        "XPU_VISIBLE_DEVICES",
        "ZE_AFFINITY_MASK",
    ),
    _DEVICES,
)
"""Variables that select devices: of vLLM's platforms (`device_control_env_var` in vllm/platforms), of their libraries,
and of container runtimes. A runtime may add all devices of the node to a container with such a variable, so sidecars
may not set them either."""
_MORE_DEVICES = re.compile(
    r"NVIDIA_(?!(?:DRIVER_CAPABILITIES|REQUIRE_[A-Z0-9_]+|DISABLE_REQUIRE|TF32_OVERRIDE)$).*"
    r"|(?!RAY_)(?:.*_)?VISIBLE_.*|DOCKER_RESOURCE_.*|ASCEND_RUNTIME_.*",
    re.DOTALL,
)
"""Names of the same kind, because runtimes get new ones: those of NVIDIA's container toolkit that choose devices, and
everything that names what is visible. Ray's own variables only keep it from setting such a one."""

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


def device_variable(name: str) -> str | None:
    """Why no container may set this variable, because it selects devices; None if it does not."""
    return _DEVICES if name in DEVICE_ENVIRONMENT or _MORE_DEVICES.fullmatch(name) else None


def refused_variable(name: str) -> str | None:
    """Why neither fields nor overlays may set this variable on the vLLM container; None if they may."""
    return REFUSED_ENVIRONMENT.get(name) or device_variable(name)


_FAMILIES = frozenset(name.partition("_")[0] for name in REFUSED_ENVIRONMENT) | {
    *(
        "HF",
        "HUGGINGFACE",
        "MODELSCOPE",
        "XET",
        "RUNAI",
        "HTTP",
        "HTTPS",
        "ALL",
        "SSL",
        "RES",
        "RESOLV",
        "CARES",
        "GRPC",
        "OPENSSL",
    ),
    *("REQUESTS", "HTTPLIB2", "CURL", "GIT", "LD", "GLIBC", "GCONV", "PYTHON", "BASH", "RAY"),
}
"""First words of variables that no resource may set, at least beside a token."""


def refused_prefix(prefix: str) -> bool:
    """Whether a variable with this prefix, a word and an underscore, could be one that a resource may not set."""
    return prefix.partition("_")[0].upper() in _FAMILIES


def _forms(options: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Each option under all names that vLLM's parser gives it, with the reason.

    Source: `EnableDisableAction` in vllm/utils/argparse_utils.py of vLLM 0.33, which calls the opposite of
    `--enable-lora` `--disable-lora`. Earlier releases call it `--no-enable-lora`.
    """
    for name, why in options:
        yield name, why
        yield f"no-{name}", why
        if name.startswith("enable-"):
            yield f"disable-{name.removeprefix('enable-')}", why


_REFUSED_FORMS = dict(_forms([*OWNED_ARGUMENTS.items(), *REFUSED_ARGUMENTS.items()]))


def refused_argument(name: str, known: Collection[str]) -> str | None:
    """Why an option is rejected; None if it is not.

    Args:
        name: Name of the option in the spec.
        known: Options of vLLM. An unknown name is rejected if argparse could expand it to a rejected option.
    """
    if why := _REFUSED_FORMS.get(name):
        return why
    if name in known:
        return None
    return next(
        (f"vLLM could read it as {form}; {why}" for form, why in _REFUSED_FORMS.items() if form.startswith(name)), None
    )
