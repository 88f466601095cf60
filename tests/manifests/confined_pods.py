"""A pod that meets the restricted Pod Security Standard, and changes that violate it or do not."""

from collections.abc import Callable
from typing import Any

Json = dict[str, Any]

GOOD: Json = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "a",
                "image": "a:1",
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
    },
}
Change = Callable[[Json], object]


def _volume(**volume: Any) -> Change:
    return lambda pod: pod["spec"].update(volumes=[{"name": "v", **volume}])


def _pod(**members: Any) -> Change:
    return lambda pod: pod["spec"].update(members)


def _pod_context(**members: Any) -> Change:
    return lambda pod: pod["spec"]["securityContext"].update(members)


def _container(**members: Any) -> Change:
    return lambda pod: pod["spec"]["containers"][0].update(members)


def _context(**members: Any) -> Change:
    return lambda pod: pod["spec"]["containers"][0]["securityContext"].update(members)


def _without(member: str) -> Change:
    return lambda pod: pod["spec"]["securityContext"].pop(member)


_CALL = {"host": "10.0.0.1", "port": 80}
BAD: dict[str, Change] = {
    "host-network": _pod(hostNetwork=True),
    "host-pid": _pod(hostPID=True),
    "host-ipc": _pod(hostIPC=True),
    "host-path": _volume(hostPath={"path": "/"}),
    "nfs": _volume(nfs={"server": "a", "path": "/"}),
    "iscsi": _volume(iscsi={"targetPortal": "1.2.3.4:3260", "iqn": "iqn.2001-04.com.example:storage", "lun": 0}),
    "fc": _volume(fc={"targetWWNs": ["50060e801049cfd1"], "lun": 0}),
    "flex-volume": _volume(flexVolume={"driver": "a/b"}),
    "git-repo": _volume(gitRepo={"repository": "https://a"}),
    "host-port": _container(ports=[{"containerPort": 80, "hostPort": 80}]),
    "privileged": _context(privileged=True, allowPrivilegeEscalation=True),
    "escalation": _context(allowPrivilegeEscalation=True),
    "escalation-not-said": lambda pod: pod["spec"]["containers"][0]["securityContext"].pop("allowPrivilegeEscalation"),
    "no-context": lambda pod: pod["spec"]["containers"][0].pop("securityContext"),
    "keeps-capabilities": _context(capabilities={"drop": ["NET_RAW"]}),
    "ipc-lock": _context(capabilities={"drop": ["ALL"], "add": ["IPC_LOCK"]}),
    "sys-admin": _context(capabilities={"drop": ["ALL"], "add": ["SYS_ADMIN"]}),
    "may-be-root": _context(runAsNonRoot=False),
    "may-be-root-by-silence": _without("runAsNonRoot"),
    "root": _context(runAsUser=0),
    "pod-root": _pod_context(runAsUser=0),
    "no-seccomp": _without("seccompProfile"),
    "unconfined": _context(seccompProfile={"type": "Unconfined"}),
    "pod-unconfined": _pod_context(seccompProfile={"type": "Unconfined"}),
    "app-armor": _context(appArmorProfile={"type": "Unconfined"}),
    "se-linux-type": _context(seLinuxOptions={"type": "spc_t"}),
    "se-linux-user": _context(seLinuxOptions={"user": "system_u"}),
    "sysctl": _pod_context(sysctls=[{"name": "kernel.msgmax", "value": "1"}]),
    "probe-host": _container(livenessProbe={"httpGet": _CALL}),
    "socket-host": _container(readinessProbe={"tcpSocket": _CALL}),
    "hook-host": _container(lifecycle={"preStop": {"httpGet": _CALL}}),
    "init-container": _pod(initContainers=[{"name": "i", "image": "i:1"}]),
}
ALSO_GOOD: dict[str, Change] = {
    "as-it-is": lambda _: None,
    "volumes": _pod(
        volumes=[
            {"name": "a", "emptyDir": {}},
            {"name": "b", "configMap": {"name": "x"}},
            {"name": "c", "secret": {"secretName": "x"}},
            {"name": "d", "persistentVolumeClaim": {"claimName": "x"}},
            {"name": "e", "projected": {"sources": [{"configMap": {"name": "x"}}]}},
            {"name": "f", "image": {"reference": "x:1"}},
            {"name": "g", "downwardAPI": {"items": []}},
            {"name": "h", "csi": {"driver": "a"}},
        ]
    ),
    "bind": _context(capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}),
    "own-user": _context(runAsUser=1000, runAsNonRoot=True),
    "own-seccomp": _context(seccompProfile={"type": "RuntimeDefault"}),
    "safe-sysctl": _pod_context(sysctls=[{"name": "net.ipv4.tcp_syncookies", "value": "1"}]),
    "probes": _container(livenessProbe={"httpGet": {"port": 80}}, readinessProbe={"exec": {"command": ["true"]}}),
    "hook": _container(lifecycle={"preStop": {"sleep": {"seconds": 1}}}),
}


STRICTER: dict[str, Change] = {
    "root-group": _context(runAsGroup=0),
    "group-of-volumes": _pod_context(fsGroup=0),
    "groups": _pod_context(supplementalGroups=[1000, 0]),
    # Kubernetes' own validation refuses these before its admission looks at the standard.
    "windows": _pod_context(windowsOptions={"hostProcess": True}),
    "proc": _context(procMount="Unmasked"),
}
"""What our checker refuses, and Kubernetes' admission by the standard does not get to see or lets pass."""
