"""Checks of the restricted Pod Security Standard (kubernetes.io/docs/concepts/security/pod-security-standards).

There is no maintained checker in Python. Unlike the standard, which restricts only runAsUser, this one rejects user and
group 0 in all fields. tests/integration/test_pod_security.py compares it with Kubernetes.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pdinference.api.validation import Problem

Json = Mapping[str, Any]

_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_VOLUME_TYPES = frozenset(
    {
        "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected",
        "secret",
    }
)  # fmt: skip
_CAPABILITIES = frozenset({"NET_BIND_SERVICE"})
_SECCOMP = ("RuntimeDefault", "Localhost")
_SELINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
_SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range", "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem", "net.ipv4.tcp_syncookies", "net.ipv4.tcp_wmem",
    }
)  # fmt: skip
_APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"


@dataclass(frozen=True)
class Exceptions:
    """Exceptions from the standard that the installation policy allows.

    Attributes:
        capabilities: Linux capabilities that containers may add.
        volume_types: Volume types.
        root: Whether containers may run as root.
    """

    capabilities: frozenset[str] = field(default_factory=frozenset)
    volume_types: frozenset[str] = field(default_factory=frozenset)
    root: bool = False


def restricted_problems(pod: Json, field_path: str = "", exceptions: Exceptions = Exceptions()) -> Iterator[Problem]:
    """Violations of the standard by a pod or a pod template.

    Args:
        pod: Object with `metadata` and `spec`.
        field_path: Prefix of each path.
        exceptions: Exceptions from the standard.
    """
    for row, check in ROWS.items():
        for path, message in check(pod, exceptions):
            yield Problem(f"{field_path}.{path}".lstrip("."), f"{message} ({row})")


Found = Iterator[tuple[str, str]]


def _host_process(pod: Json, _: Exceptions) -> Found:
    for path, context in _contexts(pod):
        if (context.get("windowsOptions") or {}).get("hostProcess"):
            yield f"{path}.windowsOptions.hostProcess", "The process would run on the node."


def _host_namespaces(pod: Json, _: Exceptions) -> Found:
    for member in ("hostNetwork", "hostPID", "hostIPC"):
        if pod["spec"].get(member):
            yield f"spec.{member}", "The pod would share a namespace with the node."


def _privileged(pod: Json, _: Exceptions) -> Found:
    for path, container in containers_of(pod):
        if _context(container).get("privileged"):
            yield f"{path}.securityContext.privileged", "The container would be privileged."


def _volume_types(pod: Json, exceptions: Exceptions) -> Found:
    for volume in pod["spec"].get("volumes") or ():
        for kind in volume.keys() - {"name"} - _VOLUME_TYPES - exceptions.volume_types:
            yield f"spec.volumes[{volume.get('name')}].{kind}", "This type of volume is not allowed."


def _host_ports(pod: Json, _: Exceptions) -> Found:
    for path, container in containers_of(pod):
        if any(port.get("hostPort") for port in container.get("ports") or ()):
            yield f"{path}.ports", "hostPort takes a port of the node."


def _host_probes(pod: Json, _: Exceptions) -> Found:
    for path, container in containers_of(pod):
        hooks = container.get("lifecycle") or {}
        handlers = {
            **{name: container.get(name) for name in ("livenessProbe", "readinessProbe", "startupProbe")},
            **{f"lifecycle.{name}": hooks.get(name) for name in ("postStart", "preStop")},
        }
        for name, handler in handlers.items():
            for call in ("httpGet", "tcpSocket"):
                if ((handler or {}).get(call) or {}).get("host"):
                    yield f"{path}.{name}.{call}.host", "The kubelet would call another host."


def _app_armor(pod: Json, _: Exceptions) -> Found:
    for path, context in _contexts(pod):
        if (context.get("appArmorProfile") or {}).get("type", "RuntimeDefault") not in {"RuntimeDefault", "Localhost"}:
            yield f"{path}.appArmorProfile.type", "AppArmor would be off."
    for key, value in ((pod.get("metadata") or {}).get("annotations") or {}).items():
        confined = value in {"", "runtime/default"} or value.startswith("localhost/")
        if key.startswith(_APPARMOR_ANNOTATION) and not confined:
            yield f"metadata.annotations.{key}", "AppArmor would be off."


def _se_linux(pod: Json, _: Exceptions) -> Found:
    for path, context in _contexts(pod):
        options = context.get("seLinuxOptions") or {}
        if options.get("type", "") not in _SELINUX_TYPES or options.get("user") or options.get("role"):
            yield f"{path}.seLinuxOptions", "SELinux would not confine the container."


def _proc_mount(pod: Json, _: Exceptions) -> Found:
    for path, container in containers_of(pod):
        if _context(container).get("procMount", "Default") != "Default":
            yield f"{path}.securityContext.procMount", "The container would see more of /proc."


def _sysctls(pod: Json, _: Exceptions) -> Found:
    for sysctl in _context(pod["spec"]).get("sysctls") or ():
        if sysctl.get("name") not in _SYSCTLS:
            yield f"spec.securityContext.sysctls[{sysctl.get('name')}]", "This sysctl is not allowed."


def _privilege_escalation(pod: Json, _: Exceptions) -> Found:
    for path, container in containers_of(pod):
        if _context(container).get("allowPrivilegeEscalation") is not False:
            yield f"{path}.securityContext.allowPrivilegeEscalation", "This has to be false."


def _run_as_non_root(pod: Json, exceptions: Exceptions) -> Found:
    for path, container in containers_of(pod):
        if exceptions.root:
            if _effective(pod, container, "runAsUser") == 0 and _effective(pod, container, "runAsNonRoot"):
                yield f"{path}.securityContext.runAsNonRoot", "The kubelet starts no root with it. Write false."
        elif _effective(pod, container, "runAsNonRoot") is not True:
            yield f"{path}.securityContext.runAsNonRoot", "This has to be true."


def _root_user_and_groups(pod: Json, exceptions: Exceptions) -> Found:
    if exceptions.root:
        return
    for path, context in _contexts(pod):
        for member in ("runAsUser", "runAsGroup", "fsGroup"):
            if context.get(member) == 0:
                yield f"{path}.{member}", "0 is root."
        if 0 in (context.get("supplementalGroups") or ()):
            yield f"{path}.supplementalGroups", "0 is root's group."


def _seccomp(pod: Json, _: Exceptions) -> Found:
    for path, context in _contexts(pod):
        if "seccompProfile" in context and context["seccompProfile"].get("type") not in _SECCOMP:
            yield f"{path}.seccompProfile.type", "Write RuntimeDefault."
    for path, container in containers_of(pod):
        if _effective(pod, container, "seccompProfile") is None:
            yield f"{path}.securityContext.seccompProfile", "Write RuntimeDefault, here or for the pod."


def _capabilities(pod: Json, exceptions: Exceptions) -> Found:
    for path, container in containers_of(pod):
        capabilities = _context(container).get("capabilities") or {}
        if "ALL" not in (capabilities.get("drop") or ()):
            yield f"{path}.securityContext.capabilities.drop", "This has to contain ALL."
        if beyond := set(capabilities.get("add") or ()) - _CAPABILITIES - exceptions.capabilities:
            yield f"{path}.securityContext.capabilities.add", f"{', '.join(sorted(beyond))} cannot be added."


ROWS: dict[str, Callable[[Json, Exceptions], Found]] = {
    "HostProcess": _host_process,
    "Host Namespaces": _host_namespaces,
    "Privileged Containers": _privileged,
    "Volume Types": _volume_types,
    "Host Ports": _host_ports,
    "Host Probes / Lifecycle Hooks": _host_probes,
    "AppArmor": _app_armor,
    "SELinux": _se_linux,
    "/proc Mount Type": _proc_mount,
    "Sysctls": _sysctls,
    "Privilege Escalation": _privilege_escalation,
    "Running as Non-root": _run_as_non_root,
    "Running as Non-root user": _root_user_and_groups,
    "Seccomp": _seccomp,
    "Capabilities": _capabilities,
}
"""Controls of the standard by their names, without baseline controls that a restricted control includes."""


def containers_of(pod: Json) -> Iterator[tuple[str, dict[str, Any]]]:
    """Path and content of each container of a pod."""
    for kind in _CONTAINERS:
        for container in pod["spec"].get(kind) or ():
            yield f"spec.{kind}[{container.get('name')}]", container


def _contexts(pod: Json) -> Iterator[tuple[str, Json]]:
    yield "spec.securityContext", _context(pod["spec"])
    for path, container in containers_of(pod):
        yield f"{path}.securityContext", _context(container)


def _context(holder: Json) -> Json:
    return holder.get("securityContext") or {}


def _effective(pod: Json, container: Json, member: str) -> Any:
    """A member of a container's security context, or else of the pod's."""
    own = _context(container)
    return own[member] if member in own else _context(pod["spec"]).get(member)
