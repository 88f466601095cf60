"""Hardens merged pod templates, and verifies that they are restricted and that the API server accepts them.

Tests: tests/manifests/test_pod_rules.py, tests/manifests/test_policy.py
"""

from collections.abc import Iterable, Iterator
from typing import Any

from pdinference.api import names
from pdinference.api.installation_policy import Policy
from pdinference.api.validation import InvalidResourceError, Problem
from pdinference.manifests.pods.pod_security import Exceptions, containers_of, restricted_problems
from pdinference.manifests.pods.pod_validity import validity_problems
from pdinference.manifests.templates import Manifest

_MODEL_VOLUME = "model"


def hardened(pod: Manifest) -> Manifest:
    """Restrict all containers of a pod template like the operator's containers. Modifies the template.

    The security context of the pod sets the user, group and seccomp profile of all containers.
    """
    for _, container in containers_of(pod):
        context = container.setdefault("securityContext", {})
        context.setdefault("allowPrivilegeEscalation", False)
        context.setdefault("capabilities", {}).setdefault("drop", ["ALL"])
    if any(volume["name"] == _MODEL_VOLUME and "hostPath" in volume for volume in pod["spec"].get("volumes", ())):
        _model_is_read_only(pod)
    return pod


def _model_is_read_only(pod: Manifest) -> None:
    """Mount a host path with models read-only in all containers except the download."""
    for _, container in containers_of(pod):
        if container["name"] != names.MODEL_CONTAINER:
            for mount in container.get("volumeMounts", ()):
                if mount.get("name") == _MODEL_VOLUME:
                    mount["readOnly"] = True


def require_sound(objects: Iterable[Manifest], policy: Policy) -> None:
    """Reject pods that the API server would reject, or that violate the restricted Pod Security Standard.

    The policy allows exceptions from the standard. For the standard, this is a second line of defence: the rules for
    overlays reject such pods earlier, with better messages.

    Raises:
        InvalidResourceError: A pod is not valid or violates the standard.
    """
    if problems := tuple(_problems(objects, policy)):
        raise InvalidResourceError(problems)


def _problems(objects: Iterable[Manifest], policy: Policy) -> Iterator[Problem]:
    # host_path_problems checks host paths in fields; overlays cannot have any.
    types = frozenset({*policy.volume_types, *(["hostPath"] if policy.allowed_host_paths else [])})
    for manifest in objects:
        template: Any = manifest.get("spec", {}).get("template")
        if isinstance(template, dict) and "spec" in template:
            node = names.node_of(template["metadata"]["labels"])
            root = policy.root and node is not None and node[0] in names.ENGINE_ROLES
            exceptions = Exceptions(frozenset(policy.capabilities), types, root)
            where = f"{manifest['kind']} {manifest['metadata']['name']}: spec.template"
            yield from restricted_problems(template, where, exceptions)
            yield from validity_problems(template, where)
