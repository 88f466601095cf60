"""Jobs and init containers that download, check or inspect the model."""

from copy import deepcopy
from pathlib import PurePosixPath
from typing import Any

from pdinference.api import names
from pdinference.api.engines import runs_engines
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.v1alpha1.model import Model
from pdinference.engine.command import Command
from pdinference.engine.model_cache import (
    LOOK,
    MODEL_MOUNT,
    check_command,
    fetch_command,
    inspect_command,
    look_command,
)
from pdinference.engine.model_options import model_folder
from pdinference.manifests.pods.model_volumes import model_volume
from pdinference.manifests.pods.own_volumes import token_mount, token_volume
from pdinference.manifests.pods.placement import engine_scheduling
from pdinference.manifests.templates import Manifest, fill

Fields = dict[str, Any]

_DOWNLOADING = {"requests": {"cpu": "250m", "memory": "512Mi"}}
# Limits are required: without them, a pod loses the QoS class Guaranteed, and with it the exclusive CPUs of vLLM.
_SMALL = {"cpu": "500m", "memory": "512Mi"}
_LOOKING = {"requests": _SMALL, "limits": _SMALL}


def init_containers(resource: PDInference, role: Role, image: str) -> list[Fields]:
    """Init containers before vLLM: a check of a model on a volume, or the download to the cache of a node."""
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
    """Give the container that checks the model the mounts and the user of vLLM, and run it as last init container.

    An overlay may mount the model from another volume, or download it in an init container.
    """
    spec = pod["spec"]
    vllm = next(container for container in spec["containers"] if runs_engines(container["name"]))
    init_containers = spec.get("initContainers", [])
    look = next((container for container in init_containers if _looks(container)), None)
    if look is None:
        return pod
    look["volumeMounts"] = [
        *(mount for mount in look["volumeMounts"] if not _is_model(mount)),
        *(deepcopy(mount) for mount in vllm["volumeMounts"] if _is_model(mount)),
    ]
    user = {name: value for name, value in vllm["securityContext"].items() if name.startswith("runAs")}
    look["securityContext"] |= user
    spec["initContainers"] = [*(other for other in init_containers if other is not look), look]
    return pod


def _looks(container: Fields) -> bool:
    return container["name"] == names.MODEL_CONTAINER and LOOK in container.get("command", ())


def _is_model(mount: Fields) -> bool:
    return PurePosixPath(mount["mountPath"]).is_relative_to(MODEL_MOUNT)


def wants_job(model: Model) -> bool:
    """Whether a Job downloads or inspects the model."""
    return model.inspect or downloads_first(model)


def downloads_first(model: Model) -> bool:
    """Whether P and D can start only after the Job has completed."""
    return model.cache is not None and model.cache.persistent_volume_claim is not None


def job_values(resource: PDInference, image: str, job: str) -> Fields:
    """Values for the template of the Job with the name `job`."""
    model = resource.spec.model
    reference = f"{resource.metadata.namespace}/{job}"
    fetches = downloads_first(model)
    command = (
        fetch_command(resource, job=reference)
        if fetches
        else inspect_command(resource, model_folder(model.source), job=reference)
    )
    role = resource.spec.prefill_pods
    own = resource.spec.parameter if role is Role.PARAMETER else resource.spec.of(role)
    # On the nodes of P, so that a volume of one zone or node is usable by P, and a folder of the node exists.
    scheduling = engine_scheduling(resource, role, own, 0)
    overlay = own.pod_template.get("spec") or {}
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
