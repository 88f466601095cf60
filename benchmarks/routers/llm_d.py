"""llm-d's router as its documentation runs it without Kubernetes: Envoy, the endpoint picker (EPP), a list of pods.

The EPP's plugins and weights are those of llm-d's chart (v0.9.0, `default-plugins.yaml`), for P and D those of its
`deploy/config/pd-epp-config.yaml`. Envoy is set up as on llm-d's page about discovery. For P and D a proxy of llm-d's
(`pd-sidecar`) stands before each D server.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.processes import HOST, ports

_PODS: Final = "pods.yaml"
_TYPE: Final = "type.googleapis.com/envoy"
_TIMEOUT: Final = "600s"
_SCRAPED: Final = [
    {"type": "metrics-data-source", "parameters": {"scheme": "http", "path": "/metrics"}},
    {"type": "core-metrics-extractor"},
]
_UNSPLIT: Final[dict[str, Any]] = {
    "plugins": [{"type": "queue-scorer"}, {"type": "kv-cache-utilization-scorer"}, {"type": "prefix-cache-scorer"}],
    "schedulingProfiles": [
        {
            "name": "default",
            "plugins": [
                {"pluginRef": "queue-scorer", "weight": 2},
                {"pluginRef": "kv-cache-utilization-scorer", "weight": 2},
                {"pluginRef": "prefix-cache-scorer", "weight": 3},
            ],
        }
    ],
}
_SPLIT: Final[dict[str, Any]] = {
    "plugins": [
        {
            "type": "approx-prefix-cache-producer",
            "parameters": {"maxPrefixBlocksToMatch": 256, "lruCapacityPerServer": 31250},
        },
        *({"type": name} for name in ("prefix-cache-scorer", "queue-scorer", "prefill-filter", "decode-filter")),
        {"type": "max-score-picker"},
        {"type": "prefix-based-pd-decider", "parameters": {"nonCachedTokens": 16}},
        {"type": "disagg-profile-handler", "parameters": {"deciders": {"prefill": "prefix-based-pd-decider"}}},
    ],
    "schedulingProfiles": [
        {
            "name": role,
            "plugins": [
                {"pluginRef": f"{role}-filter"},
                {"pluginRef": "max-score-picker"},
                {"pluginRef": "prefix-cache-scorer", "weight": 2},
                {"pluginRef": "queue-scorer", "weight": 1},
            ],
        }
        for role in ("prefill", "decode")
    ],
}


def lines(
    folder: Path, *, programs: Path, envoy: str, port: int, d: Sequence[int], p: Sequence[int] = ()
) -> dict[str, list[str]]:
    """The command lines of its processes, by name, after their files are written.

    Args:
        folder: For the files.
        programs: The folder with `epp` and `pd-sidecar`.
        envoy: The path of Envoy.
        port: For clients.
        d: Ports of the servers, of D servers if there are P servers.
        p: Ports of P servers.
    """
    grpc, health, metrics, *sidecars = ports(3 + len(d))
    set_pods(folder, sidecars if p else d, p)
    (folder / "epp.yaml").write_text(yaml.safe_dump(_picker(folder, split=bool(p))), encoding="utf-8")
    (folder / "envoy.yaml").write_text(yaml.safe_dump(_proxy(port, grpc)), encoding="utf-8")
    found = {"epp": [str(programs / "epp"), f"--config-file={folder / 'epp.yaml'}", f"--grpc-port={grpc}"]}
    found["epp"] += [f"--grpc-health-port={health}", f"--metrics-port={metrics}", "--secure-serving=false"]
    found["epp"] += ["--metrics-endpoint-auth=false", "--pool-name=pods", "--pool-namespace=default"]
    found["envoy"] = [envoy, "--config-path", str(folder / "envoy.yaml"), "--log-level", "error"]
    found["envoy"] += ["--use-dynamic-base-id"]
    if p:
        for listens, server in zip(sidecars, d, strict=True):
            sidecar = [str(programs / "pd-sidecar"), f"--port={listens}", f"--vllm-port={server}"]
            found[f"sidecar-{server}"] = [*sidecar, "--kv-connector=nixlv2", "--secure-proxy=false"]
    return found


def set_pods(folder: Path, d: Sequence[int], p: Sequence[int] = ()) -> None:
    """Write the list of pods that the EPP watches."""
    roles = [("decode" if p else "both", port) for port in d] + [("prefill", port) for port in p]
    pods = [
        {"name": f"pod-{port}", "address": HOST, "port": str(port), "labels": {"llm-d.ai/role": role}}
        for role, port in roles
    ]
    new = folder / f"{_PODS}.new"
    new.write_text(json.dumps({"endpoints": pods}), encoding="utf-8")
    new.replace(folder / _PODS)


def _picker(folder: Path, *, split: bool) -> dict[str, Any]:
    chosen = _SPLIT if split else _UNSPLIT
    found = {
        "name": "file-discovery",
        "type": "file-discovery",
        "parameters": {"path": str(folder / _PODS), "watchFile": True},
    }
    return {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": [*chosen["plugins"], *_SCRAPED, found],
        "schedulingProfiles": chosen["schedulingProfiles"],
        "dataLayer": {"discovery": {"pluginRef": "file-discovery"}},
    }


def _proxy(port: int, grpc: int) -> dict[str, Any]:
    to_pod = {"cluster": "pods", "timeout": _TIMEOUT, "idle_timeout": _TIMEOUT}
    hosts = [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": to_pod}]}]
    modes = {f"{which}_body_mode": "FULL_DUPLEX_STREAMED" for which in ("request", "response")}
    modes |= {f"{which}_mode": "SEND" for which in ("request_header", "response_header")}
    modes |= {f"{which}_trailer_mode": "SEND" for which in ("request", "response")}
    picker = {
        "@type": f"{_TYPE}.extensions.filters.http.ext_proc.v3.ExternalProcessor",
        "failure_mode_allow": True,
        "grpc_service": {"envoy_grpc": {"cluster_name": "epp", "authority": "localhost:9002"}, "timeout": "10s"},
        "processing_mode": modes,
        "message_timeout": _TIMEOUT,
    }
    router = {"@type": f"{_TYPE}.extensions.filters.http.router.v3.Router"}
    manager = {
        "@type": f"{_TYPE}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "inference",
        "route_config": {"name": "inference", "virtual_hosts": hosts},
        "http_filters": [
            {"name": "envoy.filters.http.ext_proc", "typed_config": picker},
            {"name": "envoy.filters.http.router", "typed_config": router},
        ],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    http2 = {
        "@type": f"{_TYPE}.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    most = {"max_connections": 10000, "max_pending_requests": 10000, "max_requests": 10000}
    pods = {
        "name": "pods",
        "type": "ORIGINAL_DST",
        "connect_timeout": _TIMEOUT,
        "lb_policy": "CLUSTER_PROVIDED",
        "circuit_breakers": {"thresholds": [most]},
        "original_dst_lb_config": {"use_http_header": True, "http_header_name": "x-gateway-destination-endpoint"},
    }
    epp = {
        "name": "epp",
        "type": "STATIC",
        "lb_policy": "LEAST_REQUEST",
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2},
        "load_assignment": {
            "cluster_name": "epp",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(grpc)}}]}],
        },
    }
    listener = {"name": "inference", "address": _address(port), "filter_chains": [chain]}
    return {"static_resources": {"listeners": [listener], "clusters": [epp, pods]}}


def _address(port: int) -> Mapping[str, Any]:
    return {"socket_address": {"address": HOST, "port_value": port}}
