"""Overlays: hostile ones with the path that must be rejected, and legitimate ones that must be accepted.

Paths are those within `spec.<role>.podTemplate`.
"""

from typing import Any

Json = dict[str, Any]
Overlay = tuple[Json, str]


def _spec(path: str, **members: Any) -> Overlay:
    return {"spec": members}, f"spec.{path}"


def _label(key: str, value: str = "x") -> Overlay:
    return {"metadata": {"labels": {key: value}}}, f"metadata.labels.{key}"


def _annotation(key: str, value: str = "x") -> Overlay:
    return {"metadata": {"annotations": {key: value}}}, f"metadata.annotations.{key}"


def _volume(kind: str, deeper: str = "", /, **content: Any) -> Overlay:
    return _spec(f"volumes[v].{kind}{deeper}", volumes=[{"name": "v", kind: content}])


def _projected(kind: str, **content: Any) -> Overlay:
    source = {"name": "v", "projected": {"sources": [{kind: content}]}}
    return _spec(f"volumes[v].projected.sources[0].{kind}", volumes=[source])


def _side_car(path: str, **members: Any) -> Overlay:
    return _spec(f"containers[s].{path}", containers=[{"name": "s", "image": "s:1", **members}])


def _init(path: str, **members: Any) -> Overlay:
    return _spec(f"initContainers[i].{path}", initContainers=[{"name": "i", "image": "i:1", **members}])


def _own(name: str, path: str, **members: Any) -> Overlay:
    return _spec(f"containers[{name}].{path}", containers=[{"name": name, **members}])


def _confined(path: str, **context: Any) -> Overlay:
    return _side_car(f"securityContext.{path}", securityContext=context)


def _pod_confined(path: str, **context: Any) -> Overlay:
    return _spec(f"securityContext.{path}", securityContext=context)


def _taint(**toleration: Any) -> Overlay:
    key = toleration.get("key")
    return _spec(f"tolerations[{key or 0}].key", tolerations=[toleration])


_ELSEWHERE = {"host": "169.254.169.254", "port": 80, "path": "/latest/meta-data"}
_EVERYWHERE = {
    "requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {}, "namespaceSelector": {}}
    ]
}

_FROM_SECRET = [{"prefix": "APP_", "secretRef": {"name": "database"}}]
HOSTILE: dict[str, Overlay] = {
    # Namespaces of the node, and what the operator decides.
    "host-network": _spec("hostNetwork", hostNetwork=True),
    "host-pid": _spec("hostPID", hostPID=True),
    "host-ipc": _spec("hostIPC", hostIPC=True),
    "host-users": _spec("hostUsers", hostUsers=True),
    "shared-processes": _spec("shareProcessNamespace", shareProcessNamespace=True),
    "account": _spec("serviceAccountName", serviceAccountName="admin"),
    "old-account": _spec("serviceAccount", serviceAccount="admin"),
    "token": _spec("automountServiceAccountToken", automountServiceAccountToken=True),
    "node": _spec("nodeName", nodeName="control-plane-1"),
    "ephemeral-container": _spec("ephemeralContainers", ephemeralContainers=[{"name": "debug"}]),
    "subdomain": _spec("subdomain", subdomain="database"),
    "hostname": _spec("hostname", hostname="database-0"),
    "priority": _spec("priority", priority=2000001000),
    "preemption": _spec("preemptionPolicy", preemptionPolicy="PreemptLowerPriority"),
    "overhead": _spec("overhead", overhead={"cpu": "1000"}),
    "unknown-member": _spec("hostEverything", hostEverything=True),
    "kind": ({"kind": "Pod"}, "kind"),
    "name": ({"metadata": {"name": "x"}}, "metadata.name"),
    "namespace": ({"metadata": {"namespace": "kube-system"}}, "metadata.namespace"),
    "owner": ({"metadata": {"ownerReferences": []}}, "metadata.ownerReferences"),
    "finalizer": ({"metadata": {"finalizers": ["x/y"]}}, "metadata.finalizers"),
    # Labels that Services, policies and webhooks select by; annotations that others act on.
    "label-app": _label("app", "payments"),
    "label-name": _label("app.kubernetes.io/name", "payments"),
    "label-k8s-app": _label("k8s-app", "kube-dns"),
    "label-of-an-operator": _label("cnpg.io/cluster", "payments"),
    "label-istio": _label("sidecar.istio.io/inject", "true"),
    "label-cloud-identity": _label("azure.workload.identity/use", "true"),
    "label-own": _label("pdinference.io/role", "router"),
    "label-queue": _label("kueue.x-k8s.io/priority-class", "urgent"),
    "annotation-apparmor": _annotation("container.apparmor.security.beta.kubernetes.io/vllm", "unconfined"),
    "annotation-multus": _annotation("k8s.v1.cni.cncf.io/networks", "host-device"),
    "annotation-cni": _annotation("cni.projectcalico.org/ipAddrs", '["10.0.0.1"]'),
    "annotation-bandwidth": _annotation("kubernetes.io/egress-bandwidth", "100G"),
    "annotation-istio": _annotation("sidecar.istio.io/inject", "true"),
    "annotation-vault": _annotation("vault.hashicorp.com/agent-inject", "true"),
    "annotation-kube2iam": _annotation("iam.amazonaws.com/role", "admin"),
    "annotation-kata": _annotation("io.katacontainers.config.hypervisor.path", "/bin/sh"),
    "annotation-crio": _annotation("io.kubernetes.cri-o.Devices", "/dev/sda"),
    "annotation-cdi": _annotation("cdi.k8s.io/all", "nvidia.com/gpu=all"),
    "annotation-seccomp": _annotation("seccomp.security.alpha.kubernetes.io/pod", "unconfined"),
    # Volumes.
    "host-path": _volume("hostPath", path="/"),
    "host-path-allowed": _volume("hostPath", path="/data/llama"),
    "nfs": _volume("nfs", server="10.0.0.1", path="/"),
    "git-repo": _volume("gitRepo", repository="ext::sh -c id"),
    "flex-volume": _volume("flexVolume", driver="x/y"),
    "iscsi": _volume("iscsi", targetPortal="10.0.0.1", iqn="iqn", lun=0),
    "csi": _volume("csi", driver="secrets-store.csi.k8s.io"),
    "fc": _volume("fc", targetWWNs=["x"], lun=0),
    "ceph": _volume("cephfs", monitors=["10.0.0.1"]),
    "rbd": _volume("rbd", monitors=["10.0.0.1"], image="x"),
    "glusterfs": _volume("glusterfs", endpoints="x", path="y"),
    "aws-disk": _volume("awsElasticBlockStore", volumeID="vol-1"),
    "secret": _volume("secret", ".secretName", secretName="database"),
    "projected-token": _projected("serviceAccountToken", path="token"),
    "projected-certificate": _projected("podCertificate", keyType="ED25519"),
    "projected-trust": _projected("clusterTrustBundle", path="ca"),
    "projected-secret": _spec(
        "volumes[v].projected.sources[0].secret.name",
        volumes=[{"name": "v", "projected": {"sources": [{"secret": {"name": "database"}}]}}],
    ),
    "projected-nothing": _volume("projected", ".sources", defaultMode=0o444),
    "two-types": _spec("volumes[v].hostPath", volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]),
    # Where values and commands come from, and where calls go.
    "env-secret": _side_car(
        "env[P].valueFrom.secretKeyRef.name",
        env=[{"name": "P", "valueFrom": {"secretKeyRef": {"name": "database", "key": "password"}}}],
    ),
    "env-from-secret": _side_car("envFrom[0].secretRef.name", envFrom=_FROM_SECRET),
    "init-env-from-secret": _init("envFrom[0].secretRef.name", envFrom=_FROM_SECRET),
    "vllm-env-from-secret": _own("vllm", "envFrom[0].secretRef.name", envFrom=_FROM_SECRET),
    "env-from-without-prefix": _side_car("envFrom[0].prefix", envFrom=[{"configMapRef": {"name": "c"}}]),
    "vllm-env-from-without-prefix": _own("vllm", "envFrom[0].prefix", envFrom=[{"configMapRef": {"name": "c"}}]),
    "env-from-devices": _side_car(
        "envFrom[0].prefix", envFrom=[{"prefix": "NVIDIA_VISIBLE_", "configMapRef": {"name": "c"}}]
    ),
    "env-from-half-a-word": _init("envFrom[0].prefix", envFrom=[{"prefix": "NV", "configMapRef": {"name": "c"}}]),
    "env-from-vllm": _own("vllm", "envFrom[0].prefix", envFrom=[{"prefix": "VLLM_", "configMapRef": {"name": "c"}}]),
    "env-from-nothing": _side_car("envFrom[0]", envFrom=[{"prefix": "APP_"}]),
    "env-file": _side_car("env[P].valueFrom.fileKeyRef", env=[{"name": "P", "valueFrom": {"fileKeyRef": {}}}]),
    "probe-host": _side_car("livenessProbe.httpGet.host", livenessProbe={"httpGet": _ELSEWHERE}),
    "readiness-host": _side_car(
        "readinessProbe.tcpSocket.host", readinessProbe={"tcpSocket": {"host": "a", "port": 1}}
    ),
    "startup-host": _own("vllm", "startupProbe.httpGet.host", startupProbe={"httpGet": _ELSEWHERE}),
    "hook-host": _side_car("lifecycle.postStart.httpGet.host", lifecycle={"postStart": {"httpGet": _ELSEWHERE}}),
    "hook-socket": _side_car("lifecycle.preStop.tcpSocket", lifecycle={"preStop": {"tcpSocket": {"port": 1}}}),
    "host-port": _side_car("ports[0].hostPort", ports=[{"containerPort": 1, "hostPort": 1}]),
    "host-ip": _side_car("ports[0].hostIP", ports=[{"containerPort": 1, "hostIP": "0.0.0.0"}]),  # noqa: S104
    "propagation": _side_car(
        "volumeMounts[/m].mountPropagation",
        volumeMounts=[{"name": "v", "mountPath": "/m", "mountPropagation": "Bidirectional"}],
    ),
    "device": _side_car("volumeDevices", volumeDevices=[{"name": "v", "devicePath": "/dev/sda"}]),
    # Security contexts.
    "privileged": _confined("privileged", privileged=True),
    "escalation": _confined("allowPrivilegeEscalation", allowPrivilegeEscalation=True),
    "root": _confined("runAsUser", runAsUser=0),
    "root-group": _confined("runAsGroup", runAsGroup=0),
    "may-be-root": _confined("runAsNonRoot", runAsNonRoot=False),
    "false-as-user": _confined("runAsUser", runAsUser=False),
    "keeps-capabilities": _confined("capabilities.drop", capabilities={"drop": []}),
    "drops-one": _confined("capabilities.drop", capabilities={"drop": ["KILL"]}),
    "sys-admin": _confined("capabilities.add[0]", capabilities={"add": ["SYS_ADMIN"]}),
    "ipc-lock": _confined("capabilities.add[0]", capabilities={"add": ["IPC_LOCK"]}),
    "all-capabilities": _confined("capabilities.add[0]", capabilities={"add": ["ALL"]}),
    "unconfined": _confined("seccompProfile.type", seccompProfile={"type": "Unconfined"}),
    "localhost-profile": _confined(
        "seccompProfile.localhostProfile", seccompProfile={"type": "Localhost", "localhostProfile": "../../x"}
    ),
    "no-apparmor": _confined("appArmorProfile.type", appArmorProfile={"type": "Unconfined"}),
    "selinux": _confined("seLinuxOptions", seLinuxOptions={"type": "spc_t"}),
    "proc": _confined("procMount", procMount="Unmasked"),
    "windows": _confined("windowsOptions", windowsOptions={"hostProcess": True}),
    "init-privileged": _init("securityContext.privileged", securityContext={"privileged": True}),
    "vllm-keeps-capabilities": _own(
        "vllm", "securityContext.capabilities.drop", securityContext={"capabilities": {"drop": []}}
    ),
    "vllm-root": _own("vllm", "securityContext.runAsUser", securityContext={"runAsUser": 0}),
    "pod-root": _pod_confined("runAsUser", runAsUser=0),
    "pod-group": _pod_confined("fsGroup", fsGroup=0),
    "pod-groups": _pod_confined("supplementalGroups[1]", supplementalGroups=[1, 0]),
    "pod-unconfined": _pod_confined("seccompProfile.type", seccompProfile={"type": "Unconfined"}),
    "pod-sysctls": _pod_confined("sysctls", sysctls=[{"name": "kernel.msgmax", "value": "1"}]),
    "pod-selinux": _pod_confined("seLinuxOptions", seLinuxOptions={"user": "system_u"}),
    # The operator's own containers.
    "vllm-command": _own("vllm", "command", command=["sh"]),
    "vllm-args": _own("vllm", "args", args=["--api-key=x"]),
    "vllm-image": _own("vllm", "image", image="evil:1"),
    "vllm-ports": _own("vllm", "ports", ports=[{"containerPort": 22}]),
    "vllm-lifecycle": _own("vllm", "lifecycle", lifecycle={"preStop": {"exec": {"command": ["sleep", "9"]}}}),
    "vllm-dev-mode": _own("vllm", "env[VLLM_SERVER_DEV_MODE]", env=[{"name": "VLLM_SERVER_DEV_MODE", "value": "1"}]),
    "vllm-pickle": _own(
        "vllm",
        "env[VLLM_ALLOW_INSECURE_SERIALIZATION]",
        env=[{"name": "VLLM_ALLOW_INSECURE_SERIALIZATION", "value": "1"}],
    ),
    "vllm-other-devices": _own(
        "vllm", "env[CUDA_VISIBLE_DEVICES]", env=[{"name": "CUDA_VISIBLE_DEVICES", "value": "0,1"}]
    ),
    "side-car-all-devices": _side_car(
        "env[NVIDIA_VISIBLE_DEVICES]", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    ),
    "init-all-devices": _init("env[NVIDIA_VISIBLE_DEVICES]", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]),
    "side-car-devices-of-a-config-map": _side_car(
        "env[AMD_VISIBLE_DEVICES]",
        env=[{"name": "AMD_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}],
    ),
    "side-car-memory-of-other-nodes": _side_car(
        "env[NVIDIA_IMEX_CHANNELS]", env=[{"name": "NVIDIA_IMEX_CHANNELS", "value": "0"}]
    ),
    "router-all-devices": _own(
        "router", "env[NVIDIA_VISIBLE_DEVICES]", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    ),
    "vllm-token-in-plain-text": _own(
        "vllm", "env[HUGGING_FACE_HUB_TOKEN]", env=[{"name": "HUGGING_FACE_HUB_TOKEN", "value": "hf_x"}]
    ),
    "router-preload": _own("router", "env[LD_PRELOAD]", env=[{"name": "LD_PRELOAD", "value": "/m/evil.so"}]),
    "router-api-server": _own(
        "router", "env[KUBERNETES_SERVICE_HOST]", env=[{"name": "KUBERNETES_SERVICE_HOST", "value": "evil"}]
    ),
    "router-files": _own("router", "volumeMounts", volumeMounts=[{"name": "v", "mountPath": "/usr/lib"}]),
    "router-probe": _own("router", "readinessProbe", readinessProbe={"exec": {"command": ["cat", "/token"]}}),
    "router-image": _own("router", "image", image="evil:1"),
    "download-path": _spec(
        "initContainers[pdinference-model].env[PYTHONPATH]",
        initContainers=[{"name": "pdinference-model", "env": [{"name": "PYTHONPATH", "value": "/evil"}]}],
    ),
    "download-restart": _spec(
        "initContainers[pdinference-model].restartPolicy",
        initContainers=[{"name": "pdinference-model", "restartPolicy": "Always"}],
    ),
    "second-vllm": _spec("initContainers[vllm].name", initContainers=[{"name": "vllm", "image": "evil:1"}]),
    "disk-tier-command": _spec(
        "initContainers[kv-disk-tier].command", initContainers=[{"name": "kv-disk-tier", "command": ["sh"]}]
    ),
    # Scheduling that disturbs others.
    "system-priority": _spec("priorityClassName", priorityClassName="system-node-critical"),
    "cluster-priority": _spec("priorityClassName", priorityClassName="system-cluster-critical"),
    "runtime": _spec("runtimeClassName", runtimeClassName="privileged-runc"),
    "every-taint": _taint(operator="Exists"),
    "empty-key": _taint(key="", operator="Exists"),
    "control-plane": _taint(key="node-role.kubernetes.io/control-plane", operator="Exists"),
    "master": _taint(key="node-role.kubernetes.io/master", effect="NoSchedule"),
    "keeps-others-off": _spec(
        "affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].namespaceSelector",
        affinity={"podAntiAffinity": _EVERYWHERE},
    ),
    "device-claim": _spec(
        "resourceClaims[accelerators]", resourceClaims=[{"name": "accelerators", "resourceClaimName": "x"}]
    ),
    "dns-policy": _spec("dnsPolicy", dnsPolicy="ClusterFirstWithHostNet"),
    # Types that nobody expects.
    "capabilities-number": _confined("capabilities.add", capabilities={"add": 5}),
    "capabilities-object": _confined("capabilities.add[0]", capabilities={"add": [{"a": 1}]}),
    "capabilities-text": _confined("capabilities", capabilities="ALL"),
    "drop-text": _confined("capabilities.drop", capabilities={"drop": "ALL"}),
    "drop-objects": _confined("capabilities.drop", capabilities={"drop": ["ALL", {"a": 1}]}),
    "env-name": _own("vllm", "env[0].name", env=[{"name": {}}]),
    "env-text": _own("vllm", "env", env="A=1"),
    "env-number": _own("vllm", "env[A].value", env=[{"name": "A", "value": 1}]),
    "container-name": _spec("containers[0].name", containers=[{"name": ["vllm"], "image": "x"}]),
    "container-without-name": _spec("containers[0].name", containers=[{"image": "x"}]),
    "container-without-image": _spec("containers[s].image", containers=[{"name": "s"}]),
    "containers-object": _spec("containers", containers={"name": "vllm"}),
    "containers-text": _spec("containers", containers="vllm"),
    "container-text": _spec("containers[0]", containers=["vllm"]),
    "nested-lists": _spec("containers[0]", containers=[[[]]]),
    "volume-text": _spec("volumes[0]", volumes=["v"]),
    "volume-type-text": _spec("volumes[v].emptyDir", volumes=[{"name": "v", "emptyDir": "x"}]),
    "metadata-list": ({"metadata": ["labels"]}, "metadata"),
    "labels-list": ({"metadata": {"labels": ["a"]}}, "metadata.labels"),
    "label-number": ({"metadata": {"labels": {"team": 5}}}, "metadata.labels.team"),
    "annotation-object": ({"metadata": {"annotations": {"a": {}}}}, "metadata.annotations.a"),
    "spec-text": ({"spec": "x"}, "spec"),
    "null": ({"spec": {"securityContext": None}}, "spec.securityContext"),
    # Refused before anything looks into the overlay: what JSON, or the API server, cannot hold.
    "number-as-key": ({"spec": {1: 2}}, "spec"),
    "infinite-amount": (_side_car("", resources={"limits": {"cpu": float("inf")}})[0], ""),
    "huge-amount": (_side_car("", resources={"limits": {"cpu": 10**400}})[0], "spec.containers[0]"),
    "many-containers": _spec("containers", containers=[{"name": f"s{n}", "image": "x"} for n in range(100)]),
}

_LOGS = [{"name": "logs", "mountPath": "/logs"}]
LEGITIMATE: dict[str, Json] = {
    "nothing": {},
    "pull-secret": {"spec": {"imagePullSecrets": [{"name": "registry"}]}},
    "labels": {"metadata": {"labels": {"team": "search", "cost-centre": "42", "example.com/tier": "gold"}}},
    "annotations": {"metadata": {"annotations": {"a": "b", "prometheus.io/scrape": "true", "checksum/config": "1f"}}},
    "log-side-car": {
        "spec": {
            "volumes": [{"name": "logs", "emptyDir": {"sizeLimit": "1Gi"}}],
            "containers": [
                {"name": "vllm", "volumeMounts": _LOGS},
                {
                    "name": "logger",
                    "image": "fluent/fluent-bit:4",
                    "args": ["-c", "/etc/fluent.conf"],
                    "env": [
                        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                        {"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}}},
                        {"name": "LEVEL", "valueFrom": {"configMapKeyRef": {"name": "logging", "key": "level"}}},
                    ],
                    "ports": [{"name": "metrics", "containerPort": 2020}],
                    "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
                    "livenessProbe": {"httpGet": {"path": "/", "port": "metrics"}, "periodSeconds": 10},
                    "volumeMounts": [{"name": "logs", "mountPath": "/logs", "readOnly": True}],
                },
            ],
        }
    },
    "claim": {
        "spec": {
            "volumes": [{"name": "adapters", "persistentVolumeClaim": {"claimName": "adapters"}}],
            "containers": [
                {"name": "vllm", "volumeMounts": [{"name": "adapters", "mountPath": "/adapters", "subPath": "a"}]}
            ],
        }
    },
    "config-map": {
        "spec": {
            "volumes": [{"name": "config", "configMap": {"name": "c", "items": [{"key": "a", "path": "a.yaml"}]}}],
            "containers": [
                {"name": "vllm", "volumeMounts": [{"name": "config", "mountPath": "/config", "readOnly": True}]}
            ],
        }
    },
    "environment-from-a-config-map": {
        "spec": {"containers": [{"name": "vllm", "envFrom": [{"configMapRef": {"name": "nccl"}, "prefix": "NCCL_"}]}]}
    },
    "downward-api": {
        "spec": {
            "volumes": [
                {
                    "name": "info",
                    "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]},
                },
                {
                    "name": "both",
                    "projected": {"sources": [{"configMap": {"name": "c"}}, {"downwardAPI": {"items": []}}]},
                },
            ]
        }
    },
    "ephemeral-volume": {
        "spec": {
            "volumes": [
                {
                    "name": "scratch",
                    "ephemeral": {
                        "volumeClaimTemplate": {
                            "spec": {
                                "accessModes": ["ReadWriteOnce"],
                                "storageClassName": "nvme",
                                "resources": {"requests": {"storage": "100Gi"}},
                            }
                        }
                    },
                }
            ]
        }
    },
    "image-volume": {"spec": {"volumes": [{"name": "data", "image": {"reference": "registry.example/data:1"}}]}},
    "shared-memory": {"spec": {"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "32Gi"}}]}},
    "init-container": {
        "spec": {
            "initContainers": [
                {
                    "name": "wait",
                    "image": "busybox:1",
                    "command": ["sh", "-c", "until nslookup registry; do sleep 1; done"],
                    "securityContext": {"runAsUser": 1000, "readOnlyRootFilesystem": True},
                }
            ]
        }
    },
    "init-side-car": {
        "spec": {
            "initContainers": [
                {
                    "name": "proxy",
                    "image": "proxy:1",
                    "restartPolicy": "Always",
                    "startupProbe": {"tcpSocket": {"port": 8080}},
                    "readinessProbe": {"exec": {"command": ["true"]}},
                    "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
                    "securityContext": {"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}},
                }
            ]
        }
    },
    "grpc-probe": {
        "spec": {
            "containers": [{"name": "s", "image": "s:1", "livenessProbe": {"grpc": {"port": 9000, "service": ""}}}]
        }
    },
    "probe-times": {"spec": {"containers": [{"name": "vllm", "readinessProbe": {"failureThreshold": 9}}]}},
    "gpu-tolerations": {
        "spec": {
            "tolerations": [
                {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                {
                    "key": "node.kubernetes.io/not-ready",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 9,
                },
            ],
            "nodeSelector": {"pool": "gpu"},
            "runtimeClassName": "nvidia",
            "priorityClassName": "serving",
            "schedulerName": "volcano",
        }
    },
    "spread-and-affinity": {
        "spec": {
            "topologySpreadConstraints": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "maxSkew": 1,
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"team": "search"}},
                }
            ],
            "affinity": {
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 10,
                            "podAffinityTerm": {
                                "topologyKey": "kubernetes.io/hostname",
                                "labelSelector": {
                                    "matchExpressions": [{"key": "team", "operator": "In", "values": ["search"]}]
                                },
                            },
                        }
                    ]
                }
            },
        }
    },
    "names": {
        "spec": {
            "hostAliases": [{"ip": "10.0.0.10", "hostnames": ["registry.internal"]}],
            "dnsPolicy": "ClusterFirst",
            "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
        }
    },
    "groups": {"spec": {"securityContext": {"supplementalGroups": [2000], "fsGroup": 2000, "runAsUser": 1000}}},
    "more-devices": {
        "spec": {
            "resourceClaims": [{"name": "nic", "resourceClaimTemplateName": "nic"}],
            "containers": [{"name": "vllm", "resources": {"limits": {"rdma/ib": 1}, "claims": [{"name": "nic"}]}}],
        }
    },
    "nccl": {"spec": {"containers": [{"name": "vllm", "env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}]}},
    "router-log": {"spec": {"containers": [{"name": "router", "env": [{"name": "RUST_LOG", "value": "debug"}]}]}},
    "gates": {
        "spec": {"readinessGates": [{"conditionType": "x/ready"}], "schedulingGates": [{"name": "example.com/quota"}]}
    },
}
