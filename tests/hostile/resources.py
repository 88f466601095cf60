"""Resources with misplaced, mistyped or oversized values, and with special text."""

from typing import Any

from tests.hostile.entries import Document, Entry, harmless, refused, refused_batch, spec_of
from tests.hostile.seeds import resource

_LONG = "a" * 100_000


def _metadata(field: str, says: str = "", **members: Any) -> Entry:
    return Entry(resource(spec_of("memoryPolicy", "Warn"), **members), refused=field, says=says)


def _whole(field: str, document: Document) -> Entry:
    return Entry(document, refused=field)


def _nested(depth: int, kind: type) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind is list else {"a": value}
    return value


def _args(name: str, value: Any) -> Entry:
    return refused("decode.args", {name: value}, f"decode.args.{name}")


RESOURCES: dict[str, Entry] = {
    # The document itself.
    "no-metadata": _whole("metadata", {"kind": "PDInference", "spec": spec_of("memoryPolicy", "Warn")}),
    "metadata-text": _whole("metadata", {"kind": "PDInference", "metadata": "x", "spec": {}}),
    "metadata-list": _whole("metadata", {"kind": "PDInference", "metadata": ["x"], "spec": {}}),
    "metadata-number": _whole("metadata", {"kind": "PDBatch", "metadata": 5, "spec": {}}),
    "name-list": _metadata("metadata.name", name=["llama"]),
    "name-map": _metadata("metadata.name", name={}),
    "name-long": _metadata("metadata.name", name=_LONG),
    "name-newline": _metadata("metadata.name", name="llama\n"),
    "name-template": _metadata("metadata.name", name="{{ x }}"),
    "name-path": _metadata("metadata.name", name="../../etc"),
    "namespace-list": _metadata("metadata.namespace", namespace=["models"]),
    "generation-text": _metadata("metadata.generation", generation="1"),
    "spec-text": _whole("spec", resource("x")),
    "spec-list": _whole("spec", resource([1])),
    "spec-null": _whole("spec", resource(None)),
    "kind-list": _whole("kind", {**resource({}), "kind": ["PDInference"]}),
    "kind-of-megabytes": _whole("kind", {**resource({}), "kind": [_LONG] * 30}),
    "kind-unknown": _whole("kind", {**resource({}), "kind": "Pod"}),
    "version-unknown": _whole("apiVersion", {**resource(spec_of("memoryPolicy", "Warn")), "apiVersion": "v1"}),
    "keys-that-are-numbers": _whole("spec", resource({**spec_of("memoryPolicy", "Warn"), 1: 2})),
    "keys-that-are-null": _whole("spec.decode", resource(spec_of("decode", {None: 1}))),
    "key-endless": refused("decode", {_LONG: 1}, f"decode.{_LONG}"),
    # Sizes.
    "spec-of-a-megabyte": refused("engine.env", {f"A{i}": "x" * 4000 for i in range(60)}, "*", "bytes of JSON"),
    "deep-template": refused("decode.podTemplate", _nested(1000, dict), "decode.podTemplate.a.a.a", "nested"),
    "deep-list": refused(
        "decode.args", {"hf-overrides": _nested(1000, list)}, "decode.args.hf-overrides[0][0]", "nested"
    ),
    "deep-defaults": refused(
        "model.generationDefaults",
        {"temperature": _nested(65, list)},
        "model.generationDefaults.temperature[0][0]",
        "nested",
    ),
    "many-members": refused("decode", {f"k{i}": 1 for i in range(9000)}, "decode.k0"),
    "many-values": refused(
        "decode.parallelism.layerPartition", [1] * 17_000, "decode.parallelism.layerPartition[16370]", "values"
    ),
    "many-adapters": refused("model.lora.adapters", [{"name": "a", "path": "/a"}] * 3000),
    "many-tolerations": refused("decode.placement.tolerations", [{"key": 1}] * 4000),
    "many-arguments": refused("decode.args", {f"option-{i}": 1 for i in range(4000)}),
    "many-variables": refused("engine.env", {f"A{i}": "" for i in range(5000)}),
    "many-products": refused("decode.accelerator.products", ["a"] * 9000),
    "many-unknown-options": _args("attn-backen0", 1),
    # Numbers.
    "replicas-beyond-64-bits": refused("decode.replicas", 10**400),
    "replicas-fraction": refused("decode.replicas", 1.5),
    "replicas-true": refused("decode.replicas", True),
    "replicas-negative": refused("decode.replicas", -(2**63)),
    "replicas-not-a-number": refused("decode.replicas", float("nan")),
    "utilization-infinite": refused("engine.gpuMemoryUtilization", float("inf")),
    "utilization-not-a-number": refused("engine.gpuMemoryUtilization", float("nan")),
    "utilization-negative": refused("engine.gpuMemoryUtilization", -0.5),
    "port-beyond": refused("router.service.port", 65536),
    "seed-huge": refused("engine.seed", 2**40),
    "tensor-zero": refused("decode.parallelism.tensor", 0),
    "tensor-huge": refused("decode.parallelism.tensor", 2**31),
    "pipeline-negative": refused("parameter.parallelism.pipeline", -1),
    "partition-of-texts": refused(
        "parameter.parallelism.layerPartition", ["16", "16"], "parameter.parallelism.layerPartition[0]"
    ),
    "length-huge": refused("model.maxModelLength", 2**62),
    "rank-odd": refused("model.lora", {"maxRank": 7}, "model.lora.maxRank"),
    "quantity-endless": refused("decode.resources.limits", {"cpu": "9" * 999}, "decode.resources.limits.cpu"),
    "quantity-exponent": refused("decode.resources.limits", {"cpu": "1e999"}, "decode.resources.limits.cpu"),
    "quantity-negative": refused("decode.resources.limits", {"memory": "-1Gi"}, "decode.resources.limits.memory"),
    "quantity-unicode-digits": refused("decode.resources.limits", {"cpu": "١٢"}, "decode.resources.limits.cpu"),
    "quantity-list": refused("decode.resources.limits", {"cpu": ["1"]}, "decode.resources.limits.cpu"),
    "memory-of-a-device-huge": harmless(
        "decode.accelerator.memory", "9" * 31 + "E", "A number; the plan counts with it."
    ),
    "ratio-that-nothing-keeps": Entry(
        resource(
            {
                **spec_of("parameter.autoscaling.maxReplicas", 4),
                "decode": {"autoscaling": {"maxReplicas": 4}},
                "autoscaling": {"ratio": {"min": {"parameter": 64}, "max": {"parameter": 1, "decode": 64}}},
            }
        ),
        refused="spec.autoscaling.ratio.max",
    ),
    "cache-of-unicode-digits": harmless(
        "decode",
        {"accelerator": {"type": "CPU"}, "env": {"VLLM_CPU_KVCACHE_SPACE": "²"}},
        "vLLM refuses it.",
    ),
    "cache-of-endless-digits": harmless(
        "decode", {"accelerator": {"type": "CPU"}, "env": {"VLLM_CPU_KVCACHE_SPACE": "9" * 4000}}, "No size of a cache."
    ),
    # Texts.
    "image-shell": refused("engine.image", "a;reboot"),
    "image-template": refused("engine.image", "{{ image }}"),
    "image-variable": refused("engine.image", "$(IMAGE)"),
    "image-long": refused("engine.image", _LONG),
    "image-map": refused("engine.image", {"name": "a"}),
    "path-climbs": refused("model.source", {"path": "/models/../../etc"}, "model.source.path"),
    "path-relative": refused("model.source", {"path": "models"}, "model.source.path"),
    "path-with-a-dash": refused("model.source", {"path": "/--config"}, "model.source.path"),
    "path-nul": refused("model.source", {"path": "/models\0/a"}, "model.source.path"),
    "path-line": refused("model.source", {"path": "/models\u2028"}, "model.source.path"),
    "path-half-a-character": refused("model.source", {"path": "/\ud800"}, "model.source.path"),
    "claim-path-climbs": refused(
        "model.source",
        {"persistentVolumeClaim": {"claimName": "a", "path": "../b"}},
        "model.source.persistentVolumeClaim.path",
    ),
    "folder-of-a-node": refused("model.source", {"hostPath": {"path": "/etc"}}, "model.source.hostPath.path"),
    "repository-address": refused(
        "model.source",
        {"huggingFace": {"repository": "http://169.254.169.254/a"}},
        "model.source.huggingFace.repository",
    ),
    "repository-climbs": refused(
        "model.source", {"huggingFace": {"repository": "../../x"}}, "model.source.huggingFace.repository"
    ),
    "revision-option": refused(
        "model.source",
        {"huggingFace": {"repository": "a/b", "revision": "--force"}},
        "model.source.huggingFace.revision",
    ),
    "two-sources": refused("model.source", {"path": "/a", "image": {"reference": "a:1"}}),
    "source-list": refused("model.source", ["/a"]),
    "served-name-line": refused("model.name", "llama\n--port=1"),
    "served-name-line-of-unicode": refused("model.name", "llama\u2028"),
    "tokenizer-climbs": refused("model.tokenizer", "a/../../b"),
    "tokenizer-option": refused("model.tokenizer", "--x"),
    "template-half-a-character": refused("model.chatTemplate", {"inline": "{{ \ud800 }}"}, "model.chatTemplate.inline"),
    "template-of-parentheses": refused(
        "model.chatTemplate", {"inline": f"{{{{ {'(' * 3000}x{')' * 3000} }}}}"}, "model.chatTemplate.inline", "deeply"
    ),
    "template-of-blocks": refused(
        "model.chatTemplate", {"inline": "{% if x %}" * 2000}, "model.chatTemplate.inline", "deeply"
    ),
    "template-of-signs": refused(
        "model.chatTemplate", {"inline": f"{{{{ {'-' * 10_000}1 }}}}"}, "model.chatTemplate.inline", "deeply"
    ),
    "template-of-digits": refused(
        "model.chatTemplate", {"inline": f"{{{{ {'9' * 60_000} }}}}"}, "model.chatTemplate.inline", "digits"
    ),
    "vllm-without-the-devices-of-its-role": refused(
        "decode.podTemplate.spec.containers",
        [{"name": "vllm", "resources": {"requests": {"nvidia.com/gpu": 0}, "limits": {"nvidia.com/gpu": 0}}}],
        "decode.podTemplate.spec.containers[vllm].resources.limits.nvidia.com/gpu",
        "parallelism",
    ),
    "vllm-with-more-devices-than-its-role": refused(
        "parameter",
        {
            "accelerator": {"resourceName": "amd.com/gpu"},
            "podTemplate": {"spec": {"containers": [{"name": "vllm", "resources": {"limits": {"amd.com/gpu": "8"}}}]}},
        },
        "parameter.podTemplate.spec.containers[vllm].resources.limits.amd.com/gpu",
    ),
    "template-endless": refused("model.chatTemplate", {"inline": "{{ x }}" * 10_000}, "model.chatTemplate.inline"),
    "secret-key-path": refused(
        "model.source",
        {"huggingFace": {"repository": "a/b", "tokenSecret": {"name": "a", "key": "../../x"}}},
        "model.source.huggingFace.tokenSecret.key",
    ),
    "products-with-operators": refused("decode.accelerator.products", ["a) or (1"], "decode.accelerator.products[0]"),
    "selector-key": refused("decode.placement.nodeSelector", {"a b": "c"}, "decode.placement.nodeSelector.a b"),
    "selector-key-endless": refused(
        "decode.placement.nodeSelector", {"a." * 9999 + "!": "c"}, f"decode.placement.nodeSelector.{'a.' * 9999}!"
    ),
    "selector-value-list": refused("decode.placement.nodeSelector", {"a": ["b"]}, "decode.placement.nodeSelector.a"),
    "tolerations-map": refused("decode.placement.tolerations", {"key": "a"}),
    "queue-path": refused("decode.placement.queueName", "../a"),
    "topology-template": refused(
        "decode.placement.topologySpread",
        [{"topologyKey": "{{ x }}"}],
        "decode.placement.topologySpread[0].topologyKey",
    ),
    # Options and variables.
    "option-of-the-operator": refused("decode.args", {"kv-transfer-config": "{}"}),
    "option-with-dashes": refused("decode.args", {"--port": 1}, "decode.args.--port"),
    "option-with-a-value": refused("decode.args", {"x=1 --port": 1}, "decode.args.x=1 --port"),
    "option-endless": refused("decode.args", {_LONG: 1}, f"decode.args.{_LONG}"),
    "option-null": refused("decode.args", {"max-logprobs": None}, "decode.args.max-logprobs"),
    "option-list-of-options": refused(
        "decode.args", {"cudagraph-capture-sizes": ["--port"]}, "decode.args.cudagraph-capture-sizes"
    ),
    "option-not-a-number": _args("max-logprobs", float("nan")),
    "option-unknown": _args("max-logprob", 1),
    "option-value-deep": refused(
        "decode.args", {"hf-overrides": _nested(80, dict)}, "decode.args.hf-overrides.a.a", "nested"
    ),
    "options-list": refused("decode.args", ["--port"]),
    "option-value-half-a-character": _args("load-format", "\ud800"),
    "cache-size-endless": _args("kv-cache-memory-bytes", "9" * 60),
    "metric-half-a-character": refused(
        "decode.autoscaling.metrics", [{"\ud800": 1}], "decode.autoscaling.metrics[0].?"
    ),
    "namespace-half-a-character": _metadata("metadata.namespace", namespace="\ud800"),
    "metric-not-a-number": refused(
        "decode.autoscaling.metrics", [{"x": float("nan")}], "decode.autoscaling.metrics[0]"
    ),
    "behavior-half-a-character": refused(
        "decode.autoscaling.behavior", {"x": "\ud800"}, "decode.autoscaling.behavior.x"
    ),
    "variable-of-the-operator": refused("engine.env", {"VLLM_API_KEY": "x"}),
    "variable-name": refused("engine.env", {"A=B": "x"}, "engine.env.A=B"),
    "variable-name-line": refused("engine.env", {"A\nB": "x"}, "engine.env.A\nB"),
    "variable-number": refused("engine.env", {"A": 1}, "engine.env.A"),
    "variable-map": refused("engine.env", {"A": {"valueFrom": {"secretKeyRef": {}}}}, "engine.env.A"),
    "variable-long": refused("engine.env", {"A": "x" * 5000}, "engine.env.A"),
    "variables-list": refused("engine.env", [{"name": "A", "value": "b"}]),
    "variable-expanded": harmless("engine.env", {"A": "$(HOME)"}, "The dollar sign is doubled for the kubelet."),
    # Router, service, roll-out.
    "service-type": refused("router.service.type", "ExternalName"),
    "service-annotations-list": refused("router.service.annotations", ["a"]),
    "service-annotation-long": refused(
        "router.service.annotations", {"a.b/c": _LONG}, "router.service.annotations.a.b/c"
    ),
    "client-range-of-host-bits": refused("router.clients", [{"cidr": "10.0.0.1/8"}], "router.clients[0].cidr"),
    "client-range-beyond": refused("router.clients", [{"cidr": "0.0.0.0/33"}], "router.clients[0].cidr"),
    "client-range-of-leading-zeros": refused("router.clients", [{"cidr": "010.0.0.0/8"}], "router.clients[0].cidr"),
    "client-range-with-a-mask": refused("router.clients", [{"cidr": "10.0.0.0/255.0.0.0"}], "router.clients[0].cidr"),
    "client-range-mapped": refused(
        "router.clients", [{"cidr": "::ffff:0.0.0.0/96"}], "router.clients[0].cidr", "range of IPv4"
    ),
    "client-range-of-an-interface": refused("router.clients", [{"cidr": "fe80::%a/64"}], "router.clients[0].cidr"),
    "client-range-line": refused("router.clients", [{"cidr": "10.0.0.0/8\n"}], "router.clients[0].cidr"),
    "client-range-of-unicode-digits": refused(
        "router.clients", [{"cidr": "\u0661\u0660.0.0.0/8"}], "router.clients[0].cidr"
    ),
    "client-range-endless": refused("router.clients", [{"cidr": f"{'1' * 9999}/8"}], "router.clients[0].cidr"),
    "client-range-number": refused("router.clients", [{"cidr": 10}], "router.clients[0].cidr"),
    "client-range-and-namespace": refused(
        "router.clients", [{"cidr": "10.0.0.0/8", "namespace": "a"}], "router.clients[0].cidr"
    ),
    "client-namespace-template": refused("router.clients", [{"namespace": "{{ x }}"}], "router.clients[0].namespace"),
    "client-namespace-any": refused("router.clients", [{"namespace": "*"}], "router.clients[0].namespace"),
    "client-labels-list": refused("router.clients", [{"podLabels": ["a"]}], "router.clients[0].podLabels"),
    "client-label-value": refused("router.clients", [{"podLabels": {"a": "b c"}}], "router.clients[0].podLabels.a"),
    "client-unknown-field": refused("router.clients", [{"ipBlock": {}}], "router.clients[0].ipBlock"),
    "clients-map": refused("router.clients", {"cidr": "10.0.0.0/8"}),
    "clients-endless": refused("router.clients", [{"namespace": "a"}] * 5000),
    "keys-in-a-path": refused("router.apiKeys", {"secretName": "../a"}, "router.apiKeys.secretName"),
    "key-of-spaces": refused(
        "router.apiKeys", {"secretName": "a", "limits": [{"name": "a b"}]}, "router.apiKeys.limits[0].name"
    ),
    "key-twice": refused(
        "router.apiKeys", {"secretName": "a", "limits": [{"name": "a"}, {"name": "a"}]}, "router.apiKeys.limits"
    ),
    "key-of-no-requests": refused(
        "router.apiKeys",
        {"secretName": "a", "limits": [{"name": "a", "requestsPerMinute": 0}]},
        "router.apiKeys.limits[0].requestsPerMinute",
    ),
    "certificate-list": refused("router.tls", {"secretName": ["a"]}, "router.tls.secretName"),
    "route-without-parents": refused("router.route", {"parentRefs": []}, "router.route.parentRefs"),
    "route-of-many-parents": refused(
        "router.route", {"parentRefs": [{"name": f"g{n}"} for n in range(2000)]}, "router.route.parentRefs"
    ),
    "route-to-a-path": refused(
        "router.route", {"parentRefs": [{"name": "../../secrets/a"}]}, "router.route.parentRefs[0].name"
    ),
    "route-kind-template": refused(
        "router.route", {"parentRefs": [{"name": "a", "kind": "{{ x }}"}]}, "router.route.parentRefs[0].kind"
    ),
    "route-host-line": refused(
        "router.route", {"parentRefs": [{"name": "a"}], "hostnames": ["a.example\nx"]}, "router.route.hostnames[0]"
    ),
    "route-host-long": refused(
        "router.route", {"parentRefs": [{"name": "a"}], "hostnames": [_LONG]}, "router.route.hostnames[0]"
    ),
    "route-header-line": refused(
        "router.route", {"parentRefs": [{"name": "a"}], "modelHeader": "x\r\ny"}, "router.route.modelHeader"
    ),
    "route-header-template": refused(
        "router.route", {"parentRefs": [{"name": "a"}], "modelHeader": "{{ x }}"}, "router.route.modelHeader"
    ),
    "route-timeout-endless": refused(
        "router.route",
        {"parentRefs": [{"name": "a"}], "timeouts": {"request": "9" * 999 + "s"}},
        "router.route.timeouts.request",
    ),
    "route-timeout-of-unicode-digits": refused(
        "router.route",
        {"parentRefs": [{"name": "a"}], "timeouts": {"request": "²s"}},
        "router.route.timeouts.request",
    ),
    "route-of-another-kind": harmless(
        "router.route",
        {"parentRefs": [{"name": "a", "group": "", "kind": "Service"}]},
        "The operator only writes the reference; whether a controller follows it is the cluster's matter.",
    ),
    "router-policy": refused("router.policy", "--policy"),
    "strategy-list": refused("rollout.strategy", ["BlueGreen"]),
    "drain-huge": refused("rollout.drainSeconds", 2**40),
    "connector-unknown": refused("transfer.connector", "os.system"),
    "devices-of-shells": refused("transfer.rdmaDevices", ["mlx5_0;x"]),
    "unknown-field": refused("decode.hostNetwork", True),
    # Batches.
    "batch-no-spec": Entry(resource(None, kind="PDBatch"), refused="spec"),
    "batch-name-list": refused_batch("inferenceRef", {"name": ["llama"]}, "inferenceRef.name"),
    "batch-name-elsewhere": refused_batch(
        "inferenceRef", {"name": "llama", "namespace": "other"}, "inferenceRef.namespace"
    ),
    "batch-path-climbs": refused_batch(
        "input", {"persistentVolumeClaim": {"claimName": "a", "path": "../b"}}, "input.persistentVolumeClaim.path"
    ),
    "batch-two-inputs": refused_batch(
        "input",
        {"persistentVolumeClaim": {"claimName": "a", "path": "b"}, "configMap": {"name": "a", "key": "b"}},
        "input",
    ),
    "batch-concurrency": refused_batch("concurrency", 2**31),
    "batch-retries-text": refused_batch("maxRetries", "3"),
    "batch-timeout-negative": refused_batch("timeoutSeconds", -1),
    "batch-ttl-beyond-64-bits": refused_batch("ttlSecondsAfterFinished", 10**400),
    "batch-resources-list": refused_batch("resources", [1]),
    "batch-model-line": refused_batch("model", "a\n--url=http://x"),
    "batch-unknown-field": refused_batch("image", "stranger/image:1"),
}
