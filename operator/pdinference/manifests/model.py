"""What brings the model into a cache and looks at it: a Job, or a container before vLLM."""

from copy import deepcopy
from pathlib import PurePosixPath
from typing import Any

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.v1alpha1.model import Model
from pdinference.engine.command import Command
from pdinference.engine.model import model_folder
from pdinference.engine.model_cache import (
    LOOK,
    MODEL_MOUNT,
    check_command,
    fetch_command,
    inspect_command,
    look_command,
)
from pdinference.manifests.own_volumes import token_mount, token_volume
from pdinference.manifests.placement import engine_scheduling
from pdinference.manifests.templates import Manifest, fill
from pdinference.manifests.volumes import model_volume

Fields = dict[str, Any]

_DOWNLOADING = {"requests": {"cpu": "250m", "memory": "512Mi"}}
# With limits: without, a pod whose vLLM has all its CPUs for itself (class Guaranteed) would lose them.
_SMALL = {"cpu": "500m", "memory": "512Mi"}
_LOOKING = {"requests": _SMALL, "limits": _SMALL}


def init_containers(resource: PDInference, role: Role, image: str) -> list[Fields]:
    """What runs before vLLM: a look at what is on a volume, or the download where each node has a cache."""
    cache, source = resource.spec.model.cache, resource.spec.model.source
    if cache is not None and cache.host_path is not None:
        return [_container(fetch_command(resource), image, _DOWNLOADING, read_only=False)]
    if cache is not None:
        return [_container(check_command(resource), image, _LOOKING)]
    if source.volume is not None:
        field = f"spec.model.source.{source.volume}.path"
        return [_container(look_command(resource, role, model_folder(source), field), image, _LOOKING)]
    return []


def seen_as_by_vllm(pod: Manifest) -> Manifest:
    """Let what looks at the model see what vLLM will see: with its mounts, as its user, after all others.

    A user's overlay may mount the model from elsewhere, or bring it by an init container. What an overlay has made
    nonsense of is left for the API server to refuse.
    """
    spec = pod["spec"]
    vllm = _named(spec.get("containers"), names.ENGINE_CONTAINER)
    look = _named(spec.get("initContainers"), names.MODEL_CONTAINER)
    if vllm is None or look is None or LOOK not in look["command"]:
        return pod
    if isinstance(own := look["volumeMounts"], list) and isinstance(theirs := vllm["volumeMounts"], list):
        look["volumeMounts"] = [*(m for m in own if not _is_model(m)), *(deepcopy(m) for m in theirs if _is_model(m))]
    if isinstance(user := vllm["securityContext"], dict) and isinstance(look["securityContext"], dict):
        look["securityContext"] |= {name: value for name, value in user.items() if name.startswith("runAs")}
    spec["initContainers"] = [*(other for other in spec["initContainers"] if other is not look), look]
    return pod


def _named(containers: Any, name: str) -> Fields | None:
    found = (c for c in containers if isinstance(c, dict)) if isinstance(containers, list) else ()
    return next((container for container in found if container.get("name") == name and "command" in container), None)


def _is_model(mount: Any) -> bool:
    path = mount.get("mountPath") if isinstance(mount, dict) else None
    return isinstance(path, str) and PurePosixPath(path).is_relative_to(MODEL_MOUNT)


def wants_job(model: Model) -> bool:
    """Whether a Job downloads or inspects the model."""
    return model.inspect or downloads_first(model)


def downloads_first(model: Model) -> bool:
    """Whether P and D cannot start before the Job is done."""
    return model.cache is not None and model.cache.persistent_volume_claim is not None


def job_values(resource: PDInference, image: str, job: str) -> Fields:
    """What the template of the Job refers to; `job` is its name."""
    model = resource.spec.model
    reference = f"{resource.metadata.namespace}/{job}"
    fetches = downloads_first(model)
    command = (
        fetch_command(resource, job=reference)
        if fetches
        else inspect_command(resource, model_folder(model.source), job=reference)
    )
    parameter = resource.spec.parameter
    # Where P may run, a volume that binds to one zone or node is of use, and a node's folder is there.
    scheduling = engine_scheduling(resource, Role.PARAMETER, parameter, 0)
    overlay = parameter.pod_template.get("spec") or {}
    volumes = model_volume(model, read_only=not fetches) if fetches or model.source.hub is None else []
    container = _container(command, image, _DOWNLOADING, read_only=not fetches, mounted=bool(volumes))
    container["volumeMounts"].append(token_mount())
    return {
        "job": job,
        "labels": names.role_labels(resource.metadata.name, Role.MODEL),
        "pull_secrets": overlay.get("imagePullSecrets"),
        "scheduling": {name: scheduling[name] for name in ("nodeSelector", "affinity", "tolerations")},
        "container": container,
        "volumes": volumes,
        "token": token_volume(),
    }


def _container(
    command: Command, image: str, resources: Fields, *, read_only: bool = True, mounted: bool = True
) -> Manifest:
    mounts = [{"name": "model", "mountPath": MODEL_MOUNT, "readOnly": read_only}] if mounted else []
    return fill(
        "model-container",
        image=image,
        command={
            "program": list(command.program),
            "arguments": list(command.arguments),
            "environment": list(command.environment),
        },
        resources=resources,
        mounts=mounts,
    )
