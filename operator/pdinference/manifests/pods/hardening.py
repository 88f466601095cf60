"""After an overlay was merged: what side-cars lack of the restricted Pod Security Standard, and the proof of it."""

from collections.abc import Iterable, Iterator
from typing import Any

from pdinference.api import names
from pdinference.api.installation_policy import Policy
from pdinference.api.validation import InvalidResourceError, Problem
from pdinference.manifests.pods.pod_security import Exceptions, containers_of, restricted_problems
from pdinference.manifests.templates import Manifest

_MODEL_VOLUME = "model"
_OFF = {
    "VLLM_SERVER_DEV_MODE": "0",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "0",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "0",
    "VLLM_API_KEY": "",
}
"""Variables that no resource may set, with the values by which vLLM takes them as not set."""


def hardened(pod: Manifest) -> Manifest:
    """A pod template whose containers are all as confined as the operator's own; changes it.

    The pod's own context says the rest (user, group, seccomp) for all containers.
    """
    for _, container in containers_of(pod):
        if container["name"] == names.ENGINE_CONTAINER and container.get("envFrom"):
            _pin_refused_variables(container)
        context = container.setdefault("securityContext", {})
        context.setdefault("allowPrivilegeEscalation", False)
        context.setdefault("capabilities", {}).setdefault("drop", ["ALL"])
    if any(volume["name"] == _MODEL_VOLUME and "hostPath" in volume for volume in pod["spec"].get("volumes", ())):
        _model_is_read_only(pod)
    return pod


def _pin_refused_variables(container: Manifest) -> None:
    """Whatever a ConfigMap holds, it opens nothing: a variable that is set by itself wins."""
    known = {variable["name"] for variable in container["env"]}
    container["env"] += [{"name": name, "value": off} for name, off in _OFF.items() if name not in known]


def _model_is_read_only(pod: Manifest) -> None:
    """Nothing but the download writes into a folder of the node that holds models, whatever an overlay mounts."""
    for _, container in containers_of(pod):
        if container["name"] != names.MODEL_CONTAINER:
            for mount in container.get("volumeMounts", ()):
                if mount.get("name") == _MODEL_VOLUME:
                    mount["readOnly"] = True


def require_restricted(objects: Iterable[Manifest], policy: Policy) -> None:
    """Refuse pods that do not meet the restricted Pod Security Standard, except where the installation allows more.

    A last line of defence: the tables of what overlays may hold refuse all of this before, and better.

    Raises:
        InvalidResourceError: A pod does not meet it; names the object and the field.
    """
    if problems := tuple(_problems(objects, policy)):
        raise InvalidResourceError(problems)


def _problems(objects: Iterable[Manifest], policy: Policy) -> Iterator[Problem]:
    # Folders of the node are checked where a resource names them; overlays cannot.
    types = frozenset({*policy.volume_types, *(["hostPath"] if policy.allowed_host_paths else [])})
    exceptions = Exceptions(frozenset(policy.capabilities), types)
    for manifest in objects:
        template: Any = manifest.get("spec", {}).get("template")
        if isinstance(template, dict) and "spec" in template:
            where = f"{manifest['kind']} {manifest['metadata']['name']}: spec.template"
            yield from restricted_problems(template, where, exceptions)
