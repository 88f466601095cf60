"""Children of a `PDBatch`: a Job, and a NetworkPolicy that allows connections from the operator only.

For output to a ConfigMap also the ConfigMap, and a service account that may write only this ConfigMap.
"""

from collections.abc import Iterator
from typing import Any, Final

from pdinference.api import names
from pdinference.api.v1alpha1 import PDBatch
from pdinference.engine.batch import (
    CERTIFICATE_FILE,
    CERTIFICATE_MOUNT,
    CONFIG_MAP_FILE,
    ENVIRONMENT,
    INPUT_MOUNT,
    KEY_MOUNT,
    OUTPUT_MOUNT,
    REPORT_FILE,
    ServiceAccess,
    runner_command,
)
from pdinference.manifests.children import command_values, owner_reference
from pdinference.manifests.pods.hardening import require_sound
from pdinference.manifests.pods.own_volumes import secret_mount, token_mount, token_volume
from pdinference.manifests.pods.placement import as_api, with_default_requests
from pdinference.manifests.settings import RenderSettings
from pdinference.manifests.templates import Manifest, fill

_UNFIT = 2
"""Exit status of the runner after an error that a retry does not fix."""
_READABLE_BY_GROUP: Final = 0o440


def render_batch(batch: PDBatch, service: ServiceAccess, settings: RenderSettings) -> tuple[Manifest, ...]:
    """Render all children of a batch except the output ConfigMap. The Job is last.

    Raises:
        InvalidResourceError: A pod would not meet the restricted Pod Security Standard.
    """
    objects = (_network_policy(batch, settings), *_account(batch), _job(batch, service, settings))
    require_sound(objects, settings.policy)
    return objects


def render_output(batch: PDBatch) -> Manifest | None:
    """The ConfigMap that the runner writes to; None for other outputs."""
    output = batch.spec.output.config_map
    return _child(batch, "batch-configmap", config_map=output.name) if output is not None else None


def _account(batch: PDBatch) -> tuple[Manifest, ...]:
    """The service account with access to the ConfigMap; empty for other outputs."""
    output = batch.spec.output.config_map
    if output is None:
        return ()
    templates = ("serviceaccount", "batch-role", "rolebinding")
    return tuple(
        _child(batch, template, config_map=output.name, namespace=batch.metadata.namespace) for template in templates
    )


def job_settings(batch: PDBatch) -> dict[str, Any]:
    """The mutable fields of the Job's spec, which are updated from the PDBatch; None for fields that are not set."""
    return {
        "suspend": batch.spec.suspend,
        "ttlSecondsAfterFinished": batch.spec.ttl_seconds_after_finished,
        "activeDeadlineSeconds": batch.spec.timeout_seconds,
    }


def _job(batch: PDBatch, service: ServiceAccess, settings: RenderSettings) -> Manifest:
    secrets = tuple(_secrets(batch, service))
    return _child(
        batch,
        "batch-job",
        settings={member: value for member, value in job_settings(batch).items() if value is not None},
        unfit=_UNFIT,
        environment=[{"name": name, "value": value} for name, value in ENVIRONMENT.items()],
        image=settings.runner_image,
        command=command_values(runner_command(batch, service)),
        report=REPORT_FILE,
        account=names.batch_object(batch.metadata.name) if batch.spec.output.config_map is not None else "",
        pull_secrets=[{"name": name} for name in service.pull_secrets],
        resources=_resources(batch),
        scheduling=as_api(batch.spec.placement),
        volumes=[*_volumes(batch), *(volume for volume, _ in secrets)],
        mounts=[*_mounts(batch), *(mount for _, mount in secrets)],
    )


def _network_policy(batch: PDBatch, settings: RenderSettings) -> Manifest:
    operator = {"namespace": settings.operator_namespace, "labels": dict(settings.operator_labels)}
    return _child(batch, "batch-networkpolicy", operator=operator)


def _child(batch: PDBatch, template: str, **values: Any) -> Manifest:
    name = batch.metadata.name
    labels = names.batch_labels(name)
    manifest = fill(template, object=names.batch_object(name), labels=labels, batch=name, **values)
    manifest["metadata"] |= {
        "namespace": batch.metadata.namespace,
        "labels": labels,
        "ownerReferences": [owner_reference(batch.kind, batch.metadata.name, batch.metadata.uid)],
    }
    return manifest


def _resources(batch: PDBatch) -> dict[str, Any]:
    return with_default_requests(batch.spec.resources, {"cpu": "100m", "memory": "256Mi"})


def _same_claim(batch: PDBatch) -> bool:
    source, target = batch.spec.input.persistent_volume_claim, batch.spec.output.persistent_volume_claim
    return source is not None and target is not None and source.claim_name == target.claim_name


def _volumes(batch: PDBatch) -> list[dict[str, Any]]:
    """One volume for each claim, because kubelets do not mount one claim twice in a pod."""
    volumes: list[dict[str, Any]] = [token_volume()] if batch.spec.output.config_map is not None else []
    if target := batch.spec.output.persistent_volume_claim:
        volumes.append({"name": "output", "persistentVolumeClaim": {"claimName": target.claim_name}})
    if config_map := batch.spec.input.config_map:
        items = [{"key": config_map.key, "path": CONFIG_MAP_FILE}]
        volumes.append({"name": "input", "configMap": {"name": config_map.name, "items": items}})
    elif (claim := batch.spec.input.persistent_volume_claim) and not _same_claim(batch):
        source = {"claimName": claim.claim_name, "readOnly": True}
        volumes.append({"name": "input", "persistentVolumeClaim": source})
    return volumes


def _mounts(batch: PDBatch) -> list[dict[str, Any]]:
    source = {"name": "output" if _same_claim(batch) else "input", "mountPath": INPUT_MOUNT, "readOnly": True}
    if batch.spec.output.persistent_volume_claim is None:
        return [token_mount(), source]
    return [{"name": "output", "mountPath": OUTPUT_MOUNT}, source]


def _secrets(batch: PDBatch, service: ServiceAccess) -> Iterator[tuple[Manifest, Manifest]]:
    """Volume and mount of the API key and of the router's certificate. Other keys of their Secrets stay outside."""
    if service.keys_secret:
        yield _secret("api-key", service.keys_secret, batch.spec.api_key_name, KEY_MOUNT)
    if service.tls_secret:
        yield _secret("certificate", service.tls_secret, CERTIFICATE_FILE, CERTIFICATE_MOUNT)


def _secret(name: str, secret: str, key: str, path: str) -> tuple[Manifest, Manifest]:
    items = [{"key": key, "path": key}]
    # Optional, so that the runner starts and reports a missing key. The kubelet would only report it as an Event.
    source = {"secretName": secret, "items": items, "defaultMode": _READABLE_BY_GROUP, "optional": True}
    return {"name": name, "secret": source}, secret_mount(name, path)
