"""What brings the model into a cache and looks at it: a Job, or a container before vLLM."""

from typing import Any

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.v1alpha1.model import Model
from pdinference.engine.command import Command
from pdinference.engine.model import model_folder
from pdinference.engine.model_cache import MODEL_MOUNT, check_command, fetch_command, inspect_command
from pdinference.manifests.placement import engine_scheduling
from pdinference.manifests.templates import Manifest, fill
from pdinference.manifests.volumes import model_volume

Fields = dict[str, Any]


def init_containers(resource: PDInference, image: str) -> list[Fields]:
    """What runs before vLLM: nothing without a cache; a check where a Job downloads; else the download itself."""
    cache = resource.spec.model.cache
    if cache is None:
        return []
    command = check_command(resource) if cache.persistent_volume_claim else fetch_command(resource)
    return [_container(resource, command, image, read_only=cache.host_path is None)]


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
    return {
        "job": job,
        "labels": names.role_labels(resource.metadata.name, Role.MODEL),
        "pull_secrets": overlay.get("imagePullSecrets"),
        "scheduling": {name: scheduling[name] for name in ("nodeSelector", "affinity", "tolerations")},
        "container": _container(resource, command, image, read_only=not fetches, mounted=bool(volumes)),
        "volumes": volumes,
    }


def _container(
    resource: PDInference, command: Command, image: str, *, read_only: bool, mounted: bool = True
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
        mounts=mounts,
    )
