# ruff: noqa: E501 - a table: one case, one line
"""Specs with values at the edge of what Kubernetes accepts, in each free text and quantity. Either answer of a check is
right, as long as the API server accepts what the check accepts."""

from typing import Any

Json = dict[str, Any]

_NAMES = (
    "a",
    "a.b",
    "a-b",
    "A",
    "a..b",
    "a.-b",
    "-a",
    "a-",
    ".a",
    "..",
    ".",
    "..a",
    "a/b",
    "a_b",
    "0",
    "x" * 63,
    "x" * 64,
    "x" * 253,
)
_KEYS = (
    *_NAMES,
    "a.b/c",
    "a.b/",
    "/c",
    "A.b/c",
    "a.b/C_d.e",
    "a/b/c",
    f"{'y' * 253}/a",
    f"{'y' * 254}/a",
    "a/" + "x" * 64,
)
_AMOUNTS = (
    "0",
    "1",
    "1.5",
    "-1",
    "+1",
    "1k",
    "1K",
    "1Ki",
    "1ki",
    "1ni",
    "1n",
    "1e3",
    "1e-3",
    ".5",
    "5.",
    "1 Gi",
    "1GB",
    "9" * 31 + "E",
    "",
    "0x1",
)
_RESOURCES = ("cpu", "memory", "ephemeral-storage", "storage", "pods", "gpu", "hugepages-2Mi", "hugepages-x", "a.b/c", "kubernetes.io/x",
              "foo.kubernetes.io/x", "requests.a.b/c", "requests.cpu")  # fmt: skip
_VALUES = ("", "a", "A_b.c", "-a", "a-", "a b", "x" * 63, "x" * 64, "é")


def _spec(**parts: Any) -> Json:
    return {"model": {"source": {"path": "/m"}}, **parts}


def _hub(key: str) -> Json:
    return {"source": {"huggingFace": {"repository": "a/b", "tokenSecret": {"name": "hub", "key": key}}}}


def _resources(name: str, amount: Any, kind: str) -> Json:
    return {kind: {name: amount}}


EDGES: dict[str, Json] = {
    **{f"token-{key}": _spec(model=_hub(key)) for key in _NAMES},
    **{
        f"template-{key}": _spec(model={"source": {"path": "/m"}, "chatTemplate": {"configMap": {"name": "c", "key": key}}})
        for key in _NAMES
    },
    **{f"claim-{name}": _spec(model={"source": {"persistentVolumeClaim": {"claimName": name}}}) for name in _NAMES},
    **{
        f"{part}-{kind}-{name}-{amount}": _spec(**{part: {"resources": _resources(name, amount, kind)}})
        for part in ("decode", "router")
        for kind in ("requests", "limits")
        for name, amount in (*((name, "1") for name in _RESOURCES), *(("cpu", amount) for amount in _AMOUNTS),
                             ("a.b/c", "1.5"), ("memory", "1.5"), ("memory", "1Mi"), ("cpu", "10m"))
    },
    **{f"service-{key}": _spec(router={"service": {"annotations": {f"example.com/{key}": "x"}}}) for key in _NAMES},
    **{f"node-label-{key}": _spec(decode={"placement": {"nodeSelector": {key: "x"}}}) for key in _KEYS},
    **{f"node-value-{value}": _spec(decode={"placement": {"nodeSelector": {"a": value}}}) for value in _VALUES},
    **{f"taint-{key}": _spec(decode={"placement": {"tolerations": [{"key": key, "operator": "Exists"}]}}) for key in _KEYS},
    **{f"queue-{value}": _spec(decode={"placement": {"queueName": value}}) for value in _VALUES},
    **{
        f"{member}-{name}": _spec(decode={"placement": {member: name}})
        for member in ("priorityClassName", "schedulerName")
        for name in _NAMES
    },
    **{f"device-{name}": _spec(decode={"accelerator": {"resourceName": name}}) for name in (*_RESOURCES, *_KEYS)},
    **{f"product-{value}": _spec(decode={"accelerator": {"products": [value]}}) for value in _VALUES},
    **{f"product-label-{key}": _spec(decode={"accelerator": {"products": ["a"], "productLabel": key}}) for key in _KEYS},
    **{
        f"rdma-{name}": _spec(transfer={"rdma": {"resourceName": name}, "path": "Network"}) for name in (*_RESOURCES, *_KEYS)
    },
    **{f"colocation-{key}": _spec(colocation={"topologyKey": key}) for key in _KEYS},
    "spread-twice": _spec(decode={"placement": {"topologySpread": [{"topologyKey": "a"}, {"topologyKey": "a"}]}}),
    **{f"secret-{name}": _spec(router={"apiKeys": {"secretName": name}, "tls": {"secretName": name}}) for name in _NAMES},
    **{
        f"client-{key}": _spec(router={"clients": [{"podLabels": {key: "x"}}, {"namespace": "a"}]}) for key in _KEYS
    },
    **{
        f"tier-{size}": _spec(decode={"kvTiers": {"cpu": {"size": "1Gi"}, "disk": {"size": size}}})
        for size in (*_AMOUNTS, "1Mi", "1.5Gi")
    },
    **{f"variable-{name}": _spec(engine={"env": {name: "x"}}) for name in ("_", "a", "A.b", "1A", "a-b", "x" * 128)},
}  # fmt: skip

_TEN = {"type": "AverageValue", "averageValue": "10"}
_PACE = {"type": "Pods", "value": 1, "periodSeconds": 60}


def _external(name: Any = "queue", target: Any = _TEN, **more: Any) -> Json:
    return {"type": "External", "external": {"metric": {"name": name, **more}, "target": target}}


def _of_pods(name: Any = "cpu", **target: Any) -> Json:
    return {"type": "Resource", "resource": {"name": name, "target": target}}


def _in_container(name: Any, container: Any) -> Json:
    of = {"name": name, "container": container, "target": {"type": "Utilization", "averageUtilization": 50}}
    return {"type": "ContainerResource", "containerResource": of}


def _object(target: Json = _TEN, **described: Any) -> Json:
    of = {"apiVersion": "v1", "kind": "Service", "name": "a", **described}
    return {"type": "Object", "object": {"describedObject": of, "metric": {"name": "queue"}, "target": target}}


_METRICS: dict[str, Any] = {
    **{f"name-{name}": _external(name) for name in (*_NAMES, "a%b", "", "A:b", "é")},
    **{f"amount-{amount!r}": _external(target={"type": "Value", "value": amount}) for amount in (*_AMOUNTS, 1, 0, -1, 1.5, "100n", True)},
    **{f"average-{amount!r}": _external(target={"type": "AverageValue", "averageValue": amount}) for amount in (*_AMOUNTS, 5)},
    **{f"type-{type_}": {**_external(), "type": type_} for type_ in ("", "external", "Pods", "Resource", "Other", None, 1)},
    **{f"target-type-{type_}": _external(target={"type": type_, "value": "1"}) for type_ in ("", "Value", "AverageValue", "Utilization", "value", None)},
    "empty": {},
    "no-type": {"external": _external()["external"]},
    "type-alone": {"type": "External"},
    "of-two": {**_external(), **_of_pods(type="Utilization", averageUtilization=50)},
    "of-null": {**_external(), "resource": None, "pods": None},
    "unknown-member": {**_external(), "a": 1},
    "unknown-inside": _external(namespace="a"),
    "no-metric": {"type": "External", "external": {"target": _TEN}},
    "no-target": {"type": "External", "external": {"metric": {"name": "a"}}},
    "no-amount": _external(target={"type": "Value"}),
    "two-amounts": _external(target={"type": "Value", "value": "1", "averageValue": "1"}),
    "utilization-of-external": _external(target={"type": "Utilization", "averageUtilization": 5}),
    "null-amount": _external(target={**_TEN, "value": None}),
    "labels": _external(selector={"matchLabels": {"a.b/c": "d", "e": "", "f g": "h i"}}),
    "labels-null": _external(selector=None),
    "label-number": _external(selector={"matchLabels": {"a": 1}}),
    **{
        f"expression-{operator}-{values}": _external(selector={"matchExpressions": [{"key": "a", "operator": operator, "values": values}]})
        for operator in ("In", "Exists", "Gt", "")
        for values in ([], ["a"], None)
    },
    **{f"utilization-{value!r}": _of_pods(type="Utilization", averageUtilization=value) for value in (0, 1, 100, -1, 2**31 - 1, 2**31, "50", 50.0, 1.5)},
    **{f"resource-{name}": _of_pods(name, **_TEN) for name in (*_RESOURCES, "")},
    "resource-both": _of_pods(type="Utilization", averageUtilization=50, averageValue="1"),
    "resource-value": _of_pods(type="Value", value="1"),
    **{f"container-resource-{name}": _in_container(name, "vllm") for name in (*_RESOURCES, *_KEYS, "")},
    **{f"container-{name}": _in_container("cpu", name) for name in (*_NAMES, "")},
    "pods": {"type": "Pods", "pods": {"metric": {"name": "a"}, "target": _TEN}},
    "pods-value": {"type": "Pods", "pods": {"metric": {"name": "a"}, "target": {"type": "Value", "value": "1"}}},
    "object": _object(),
    "object-both": _object({"type": "Value", "value": "1", "averageValue": "1"}),
    "object-utilization": _object({"type": "Utilization", "averageUtilization": 1}),
    **{f"object-kind-{kind}": _object(kind=kind) for kind in ("", "a/b", "A", "..", "a%")},
    **{f"object-name-{name}": _object(name=name) for name in ("", "a/b", "A", "..", "a%")},
    **{f"object-version-{version}": _object(apiVersion=version) for version in ("", "v1", "apps/v1", "a/b/c", "/", "x y", None)},
}  # fmt: skip


def _up(**members: Any) -> Json:
    return {"scaleUp": {"policies": [_PACE], **members}}


_BEHAVIORS: dict[str, Any] = {
    "empty": {},
    "both": {**_up(), "scaleDown": {"selectPolicy": "Disabled"}},
    "null": {"scaleUp": None},
    "empty-rules": {"scaleDown": {}},
    "unknown": {"scaleSideways": {}},
    "unknown-inside": _up(stabilisationWindowSeconds=1),
    "list": {"scaleUp": []},
    **{f"window-{seconds!r}": _up(stabilizationWindowSeconds=seconds) for seconds in (0, 3600, 3601, -1, "60", 1.5, 60.0, None)},
    **{f"select-{policy}": _up(selectPolicy=policy) for policy in ("Max", "Min", "Disabled", "max", "", None)},
    **{f"tolerance-{amount}": _up(tolerance=amount) for amount in (*_AMOUNTS, 0, 0.05, -1)},
    "no-policies": _up(policies=[]),
    "null-policies": _up(policies=None),
    **{
        f"{member}-{value!r}": _up(policies=[{**_PACE, member: value}])
        for member, values in (("type", ("Pods", "Percent", "pods", "", None)), ("value", (0, 1, -1, 2**31, "1", 1.5, None)),
                               ("periodSeconds", (0, 1, 1800, 1801, -1, None)), ("other", (1,)))
        for value in values
    },
    "policy-without-value": _up(policies=[{"type": "Pods", "periodSeconds": 1}]),
    "many-policies": _up(policies=[_PACE] * 32),
}  # fmt: skip


def edges_of_autoscalers() -> dict[str, Json]:
    """Specs with a metric or a behavior on D."""
    metrics = {f"metric-{name}": {"metrics": [metric]} for name, metric in _METRICS.items()}
    behaviors = {f"behavior-{name}": {"behavior": behavior} for name, behavior in _BEHAVIORS.items()}
    return {
        name: _spec(decode={"autoscaling": {"maxReplicas": 3, **members}})
        for name, members in (metrics | behaviors).items()
    }


_CONTAINER = {"name": "s", "image": "s:1"}


def _container(**members: Any) -> Json:
    return {"containers": [{**_CONTAINER, **members}]}


def _volume(**members: Any) -> Json:
    return {"volumes": [{"name": "v", **members}]}


def _from(source: Json) -> Json:
    return _container(env=[{"name": "A", "valueFrom": source}])


def edges_of_overlays() -> dict[str, Json]:
    """Specs with an overlay on D."""
    return {name: _spec(decode={"podTemplate": {"spec": overlay}}) for name, overlay in _OVERLAYS.items()}


_OVERLAYS: dict[str, Json] = {
    **{f"size-{amount}": _volume(emptyDir={"sizeLimit": amount}) for amount in (*_AMOUNTS, -1, 0, 1.5)},
    **{f"volume-{name}": {"volumes": [{"name": name, "emptyDir": {}}]} for name in _NAMES},
    **{f"container-{name}": {"containers": [{"name": name, "image": "x"}]} for name in _NAMES},
    **{f"image-{image}": {"containers": [{"name": "s", "image": image}]} for image in ("", "a", "a b", "A", "a:b@c", " a")},
    **{f"config-map-{name}": _volume(configMap={"name": name}) for name in _NAMES},
    **{
        f"item-{index}": _volume(configMap={"name": "c", "items": [{"key": key, "path": path}]})
        for index, (key, path) in enumerate(
            [*((key, "a") for key in _NAMES), *(("a", path) for path in ("..", "a/..", "a/../b", "..a", "/a", "a:b", "a..", "a\\nb"))]
        )
    },
    **{f"key-{key}": _from({"configMapKeyRef": {"name": "c", "key": key}}) for key in _NAMES},
    **{
        f"field-{path}": _from({"fieldRef": {"fieldPath": path}})
        for path in ("metadata.name", "metadata.labels", "metadata.labels['a']", "metadata.labels['A/b']", "metadata.labels['']",
                     "spec.nodeName", "spec.x", "status.podIP", "status.podIPs", "status.phase", "")
    },
    **{
        f"file-field-{path}": _volume(downwardAPI={"items": [{"path": "a", "fieldRef": {"fieldPath": path}}]})
        for path in ("metadata.name", "metadata.labels", "metadata.labels['a']", "metadata.annotations['A/b']", "status.podIP")
    },
    **{
        f"resource-field-{name}-{divisor}": _from({"resourceFieldRef": {"resource": name, "divisor": divisor}})
        for name in ("limits.cpu", "limits.memory", "requests.ephemeral-storage", "limits.hugepages-2Mi", "limits.a.b/c", "cpu")
        for divisor in ("0", "1", "1m", "1Mi", "3")
    },
    **{f"variable-{name}": _container(env=[{"name": name, "value": "x"}]) for name in ("_", "a.b", "a-b", ".a", "1", "a b", "é")},
    "variable-twice": _container(env=[{"name": "A"}, {"name": "A"}]),
    "variable-of-two": _from({"configMapKeyRef": {"name": "c", "key": "k"}, "fieldRef": {"fieldPath": "metadata.name"}}),
    "variable-of-none": _from({}),
    "variable-and-value": _container(env=[{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
    **{f"prefix-{prefix}": _container(envFrom=[{"prefix": prefix, "configMapRef": {"name": "c"}}]) for prefix in ("A_", "a.b_", "1_", "A_-")},
    **{
        f"{kind}-{name}-{amount}": _container(resources={kind: {name: amount}})
        for kind in ("requests", "limits")
        for name, amount in (*((name, "1") for name in _RESOURCES), *(("memory", amount) for amount in _AMOUNTS))
    },
    "request-above-limit": _container(resources={"requests": {"cpu": 2}, "limits": {"cpu": 1}}),
    "device-request-alone": _container(resources={"requests": {"a.b/c": 1}}),
    "claim-missing": _container(resources={"claims": [{"name": "a"}]}),
    "claim-of-nothing": {"resourceClaims": [{"name": "a"}]},
    "claim-of-two": {"resourceClaims": [{"name": "a", "resourceClaimName": "b", "resourceClaimTemplateName": "c"}]},
    **{
        f"mount-{index}": {**_volume(emptyDir={}), **_container(volumeMounts=mounts)}
        for index, mounts in enumerate(
            [[{"name": "w", "mountPath": "/a"}], [{"mountPath": "/a"}], [{"name": "v", "mountPath": "/a"}] * 2,
             [{"name": "v", "mountPath": "a"}], [{"name": "v", "mountPath": ""}], [{"name": "v", "mountPath": "/a:b"}],
             [{"name": "v", "mountPath": "/a", "subPath": "../b"}], [{"name": "v", "mountPath": "/a", "subPath": "b/.."}],
             [{"name": "v", "mountPath": "/a", "subPath": "b..c"}],
             [{"name": "v", "mountPath": "/a", "subPath": "b", "subPathExpr": "c"}],
             [{"name": "v", "mountPath": "/a", "recursiveReadOnly": "Enabled"}],
             [{"name": "v", "mountPath": "/a", "recursiveReadOnly": "IfPossible", "readOnly": True}]]
        )
    },
    "volume-of-nothing": _volume(),
    "volume-of-two": _volume(emptyDir={}, configMap={"name": "c"}),
    "volume-of-the-operator": {"volumes": [{"name": "tmp", "configMap": {"name": "c"}}]},
    "volume-twice": {"volumes": [{"name": "v", "emptyDir": {}}] * 2},
    "container-twice": {"containers": [_CONTAINER] * 2},
    "container-and-init": {"containers": [_CONTAINER], "initContainers": [_CONTAINER]},
    "projected-empty": _volume(projected={"sources": [{}]}),
    "projected-two": _volume(projected={"sources": [{"configMap": {"name": "c"}, "downwardAPI": {"items": []}}]}),
    "projected-none": _volume(projected={"sources": []}),
    "ephemeral-bare": _volume(ephemeral={"volumeClaimTemplate": {"spec": {}}}),
    **{
        f"ephemeral-{amount}": _volume(
            ephemeral={"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": amount}}}}}
        )
        for amount in ("1Gi", "0", "-1", "x")
    },
    "ephemeral-no-mode": _volume(
        ephemeral={"volumeClaimTemplate": {"spec": {"accessModes": [], "resources": {"requests": {"storage": "1Gi"}}}}}
    ),
    **{f"port-{name}": _container(ports=[{"name": name, "containerPort": 80}]) for name in ("80", "a--b", "a", "a-", "x" * 16, "8a")},
    "port-twice": _container(ports=[{"name": "a", "containerPort": 80}, {"name": "a", "containerPort": 81}]),
    "port-number-twice": _container(ports=[{"containerPort": 80}, {"containerPort": 80}]),
    **{
        f"probe-{index}": _container(**{kind: probe})
        for kind in ("livenessProbe", "readinessProbe", "startupProbe")
        for index, probe in (
            (f"{kind}-{number}", probe)
            for number, probe in enumerate(
                [{}, {"exec": {"command": []}}, {"exec": {}}, {"exec": {"command": ["a"]}, "tcpSocket": {"port": 1}},
                 {"tcpSocket": {"port": "80"}}, {"tcpSocket": {"port": 1}, "successThreshold": 2},
                 {"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 5}, {"httpGet": {"port": 1, "path": ""}},
                 {"httpGet": {"port": 1, "httpHeaders": [{"name": "a b", "value": "c"}]}}]
            )
        )
    },
    "init-probe": {"initContainers": [{**_CONTAINER, "livenessProbe": {"tcpSocket": {"port": 1}}}]},
    "init-hook": {"initContainers": [{**_CONTAINER, "lifecycle": {"preStop": {"exec": {"command": ["a"]}}}}]},
    **{f"hook-{seconds}": _container(lifecycle={"preStop": {"sleep": {"seconds": seconds}}}) for seconds in (0, 1, 86400)},
    "hook-empty": _container(lifecycle={"preStop": {}}),
    **{f"selector-{key}": {"nodeSelector": {key: "a"}} for key in _KEYS},
    **{f"selector-value-{value}": {"nodeSelector": {"a": value}} for value in _VALUES},
    **{f"taint-{key}": {"tolerations": [{"key": key, "operator": "Exists"}]} for key in _KEYS},
    **{
        f"toleration-{index}": {"tolerations": [toleration]}
        for index, toleration in enumerate(
            [{"key": "a", "operator": "Exists", "value": "b"}, {"key": "a"}, {"key": "a", "operator": "Lt", "value": "1"},
             {"key": "a", "tolerationSeconds": 1}, {"key": "a", "value": "-"}]
        )
    },
    **{
        f"affinity-{index}": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}}
        for index, term in enumerate(
            [{}, {"nodeSelectorTerms": []}, {"nodeSelectorTerms": [{}]},
             *({"nodeSelectorTerms": [{"matchExpressions": [expression]}]} for expression in (
                 {"key": "a", "operator": "In"}, {"key": "a", "operator": "In", "values": []},
                 {"key": "a", "operator": "Exists", "values": ["b"]}, {"key": "a", "operator": "Gt", "values": ["x"]},
                 {"key": "a", "operator": "Gt", "values": ["1", "2"]}, {"key": "a", "operator": "Gt", "values": ["1"]},
                 {"key": "a b", "operator": "Exists"}, {"key": "a", "operator": "In", "values": ["-"]})),
             {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]},
             {"nodeSelectorTerms": [{"matchFields": [{"key": "a", "operator": "In", "values": ["a"]}]}]}]
        )
    },
    **{
        f"spread-{index}": {"topologySpreadConstraints": spreads}
        for index, spreads in enumerate(
            [[{"topologyKey": "a"}], [{"topologyKey": "a", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}] * 2,
             [{"topologyKey": "a", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2}],
             [{"topologyKey": "a", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "matchLabelKeys": ["b"]}],
             [{"topologyKey": "a", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "matchLabelKeys": ["b"],
               "labelSelector": {"matchLabels": {"b": "c"}}}]]
        )
    },
    **{f"alias-{ip}": {"hostAliases": [{"ip": ip, "hostnames": ["a"]}]} for ip in ("1.2.3.4", "1.2.3", "::1", "1.2.3.400", "fe80::1%a", "01.2.3.4")},
    **{f"alias-name-{name}": {"hostAliases": [{"ip": "1.2.3.4", "hostnames": [name]}]} for name in _NAMES},
    **{
        f"dns-{index}": {"dnsPolicy": policy, "dnsConfig": config}
        for index, (policy, config) in enumerate(
            [("None", {}), ("None", {"nameservers": ["1.2.3.4"]}), ("ClusterFirst", {"nameservers": ["a"]}),
             ("ClusterFirst", {"nameservers": ["1.2.3.4"] * 4}), ("ClusterFirst", {"searches": ["a_b"]}),
             ("ClusterFirst", {"searches": ["."]}), ("ClusterFirst", {"options": [{}]}), ("ClusterFirst", {"options": [{"name": "a"}]})]
        )
    },
    **{f"gate-{key}": {"readinessGates": [{"conditionType": key}]} for key in _KEYS},
    **{f"scheduling-gate-{key}": {"schedulingGates": [{"name": key}]} for key in _KEYS},
    **{
        f"{member}-{name}": {member: name} for member in ("priorityClassName", "schedulerName", "runtimeClassName") for name in _NAMES
    },
    **{f"pull-secret-{name}": {"imagePullSecrets": [{"name": name}]} for name in _NAMES},
    **{f"image-volume-{index}": _volume(image={"reference": reference}) for index, reference in enumerate(("", "a", "a b"))},
    **{f"groups-{group}": {"securityContext": {"supplementalGroups": [group], "fsGroup": group}} for group in (1, 2**31 - 1)},
    **{f"working-folder-{index}": _container(workingDir=folder) for index, folder in enumerate(("", "a", "/a"))},
}  # fmt: skip
