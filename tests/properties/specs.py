"""Random specs: realistic ones and invalid ones."""

from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]

_TRICKS = (
    """a: b|- a|# c|null|~|1e3|0x10|yes|'|"|`id`|$(HOME)|$$(X)|{{ x }}|{% raw %}|--port=1|-x|\\|%s|;reboot|&&|é|日本"""
)
TRICKS = [
    "",
    "\0",
    "a\nb",
    "\t",
    "\r\n",
    "\u202e",
    "|",
    "\U0001f600",
    "\x7f\x85\ufeff",
    "a" * 5000,
    *_TRICKS.split("|"),
]
NASTY = st.sampled_from(TRICKS)
TEXT = st.one_of(NASTY, st.text(max_size=30), st.tuples(st.text(max_size=5), NASTY, st.text(max_size=5)).map("".join))


def _some(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """An object with any of these members."""
    return st.fixed_dictionaries({}, optional=dict(members))


_POWERS = st.sampled_from([1, 2, 4, 8])
_ARGUMENTS = _some(
    **{
        "max-logprobs": st.integers(0, 100),
        "enable-sleep-mode": st.booleans(),
        "load-format": TEXT.filter(bool),
        "tokenizer-mode": st.just("auto"),
        "hf-overrides": st.dictionaries(TEXT, st.one_of(TEXT, st.integers(-9, 9), st.booleans()), max_size=3),
        "cudagraph-capture-sizes": st.lists(st.integers(1, 64), min_size=1, max_size=3),
        "max-cpu-loras": st.integers(8, 64),
    }
)
_OPTIONS = {
    "maxNumSeqs": st.integers(1, 256),
    "maxNumBatchedTokens": st.integers(256, 65536),
    "gpuMemoryUtilization": st.sampled_from([0.01, 0.5, 0.85, 1]),
    "enableChunkedPrefill": st.booleans(),
    "enablePrefixCaching": st.booleans(),
    "enforceEager": st.booleans(),
    "expertTransport": st.sampled_from(["auto", "allgather_reducescatter", "deepep_low_latency", "nixl_ep"]),
    "cpuOffload": st.sampled_from(["0", "1Gi", "500M", 7]),
    "seed": st.integers(0, 2**32 - 1),
    "logLevel": st.sampled_from(["DEBUG", "INFO"]),
    "args": _ARGUMENTS,
    "env": st.dictionaries(st.from_regex(r"\A[A-Z_]{1,8}[A-Z0-9_]{0,8}\Z"), TEXT, max_size=3),
}
_PLACEMENT = _some(
    nodeSelector=st.dictionaries(
        st.sampled_from(["gpu", "a.b/c"]), st.sampled_from(["", "x", "true", "1"]), max_size=2
    ),
    tolerations=st.lists(_some(operator=st.just("Exists"), key=st.just("gpu")).filter(bool), max_size=2),
    priorityClassName=st.just("high"),
    queueName=st.just("team-a"),
    topologySpread=st.just([{"topologyKey": "kubernetes.io/hostname"}]),
)
_RESOURCES = _some(
    requests=st.just({"cpu": 1, "memory": "1Gi"}), limits=st.just({"cpu": "2", "memory": "8Gi", "rdma/hca": 1})
)
_LABELS = st.sampled_from(["a", "b-1", "public"])
_DURATIONS = st.sampled_from(["0s", "500ms", "30s", "1m30s", "2h"])
_ROUTE = st.fixed_dictionaries(
    {
        "parentRefs": st.lists(
            st.fixed_dictionaries(
                {"name": _LABELS},
                optional={
                    "namespace": _LABELS,
                    "sectionName": _LABELS,
                    "port": st.integers(1, 65535),
                    "kind": st.sampled_from(["Gateway", "Service"]),
                },
            ),
            min_size=1,
            max_size=3,
        )
    },
    optional={
        "hostnames": st.lists(st.sampled_from(["llm.example.com", "*.example.com", "a"]), max_size=3),
        "modelHeader": st.sampled_from(["X-Gateway-Model-Name", "x"]),
        "timeouts": _some(request=_DURATIONS, backendRequest=_DURATIONS),
    },
)
_OVERLAY = st.sampled_from(
    [
        {},
        {"metadata": {"annotations": {"example.com/b": "$(X) {{ y }}"}}},
        {"spec": {"imagePullSecrets": [{"name": "registry"}], "tolerations": [{"key": "gpu", "operator": "Exists"}]}},
        {"spec": {"volumes": [{"name": "x", "emptyDir": {}}], "hostNetwork": True}},
    ]
)


def _role(decode: bool) -> st.SearchStrategy[Json]:
    splits = {"tensor": _POWERS, "data": st.integers(1, 2)} | ({} if decode else {"pipeline": st.integers(1, 3)})
    return _some(
        replicas=st.integers(0, 9),
        parallelism=_some(**splits),
        accelerator=_some(
            type=st.sampled_from(["GPU", "CPU"]),
            products=st.lists(st.sampled_from(["NVIDIA-L4", "NVIDIA-H200", "Unheard-Of"]), unique=True, max_size=2),
            memory=st.sampled_from(["24Gi", "80Gi"]),
        ),
        placement=_PLACEMENT,
        resources=_RESOURCES,
        podTemplate=_OVERLAY,
        **_OPTIONS,
    )


_SOURCES = st.one_of(
    st.just({"path": "/models/tiny"}),
    st.just({"persistentVolumeClaim": {"claimName": "models", "path": "a/b"}}),
    st.just({"image": {"reference": "models/llama:1"}}),
    st.just({"huggingFace": {"repository": "a/b", "revision": "c", "tokenSecret": {"name": "hub", "key": "token"}}}),
    st.just({"modelScope": {"repository": "a/b"}}),
    st.just({"bucket": {"uri": "s3://models/llama", "secretName": "bucket"}}),
    st.just({"hostPath": {"path": "/srv/models"}}),
)
_TEMPLATES = st.one_of(
    st.just({"configMap": {"name": "templates", "key": "chat.jinja"}}),
    TEXT.map(lambda text: {"inline": "{{ messages }}" + text.replace("{", "").replace("\0", "")}),
    TEXT.map(lambda text: {"inline": text}),
)
_MODEL = st.fixed_dictionaries(
    {"source": _SOURCES},
    optional={
        "name": st.sampled_from(["a", "org/model:1", "x" * 253]),
        "dtype": st.sampled_from(["auto", "half", "bfloat16", "float32"]),
        "quantization": st.sampled_from(["awq", "fp8", "bitsandbytes"]),
        "maxModelLength": st.integers(1, 1 << 20),
        "chatTemplate": _TEMPLATES,
        "generationDefaults": st.just({"temperature": 0.6, "top_k": 5}),
        "trustRemoteCode": st.booleans(),
        "lora": st.just({"adapters": [{"name": "sql", "path": "/a/b"}], "maxRank": 32, "maxActive": 8}),
    },
)

SPECS = st.fixed_dictionaries(
    {"model": _MODEL},
    optional={
        "engine": _some(
            image=st.sampled_from(["vllm/vllm-openai:v0.32.0", "team/vllm:custom"]),
            kvCache=_some(dtype=st.sampled_from(["auto", "fp8"]), blockSize=st.sampled_from([16, 128])),
            **_OPTIONS,
        ),
        "parameter": _role(decode=False),
        "decode": _role(decode=True),
        "router": _some(
            replicas=st.integers(0, 3),
            policy=st.sampled_from(["random", "cache_aware"]),
            service=_some(
                type=st.sampled_from(["ClusterIP", "LoadBalancer"]),
                annotations=st.dictionaries(st.just("example.com/c"), TEXT.filter(lambda text: len(text) < 4096)),
            ),
            clients=st.lists(
                st.one_of(
                    _some(namespace=st.just("gateway"), podLabels=st.dictionaries(st.just("app"), st.just("envoy"))),
                    st.fixed_dictionaries({"cidr": st.sampled_from(["10.0.0.0/8", "::/0"])}),
                ),
                max_size=3,
            ),
            route=_ROUTE,
            placement=_PLACEMENT,
            resources=_RESOURCES,
        ),
        "rollout": _some(strategy=st.sampled_from(["BlueGreen", "Recreate"]), drainSeconds=st.integers(40, 900)),
        "colocation": st.just({"topologyKey": "kubernetes.io/hostname", "required": True}),
        "memoryPolicy": st.sampled_from(["Enforce", "Warn"]),
        "mode": st.sampled_from(["Disaggregated", "Aggregated"]),
        "transfer": _some(
            path=st.sampled_from(["Auto", "HostLocal", "Network"]),
            hostLocal=_some(parameter=st.integers(1, 8), decode=st.integers(1, 8)),
        ),
    },
)


def resource(spec: Json, name: str = "llama") -> Json:
    """A document with this spec."""
    return {
        "apiVersion": "pdinference.io/v1alpha1",
        "kind": "PDInference",
        "metadata": {"name": name, "namespace": "models", "uid": "6f1c", "generation": 1},
        "spec": spec,
    }
