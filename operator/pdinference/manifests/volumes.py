"""What a pod needs mounted for its model: pairs of a volume and where it goes."""

from typing import Any

from pdinference.api.v1alpha1.model import Model, ModelSource
from pdinference.engine.model import CHAT_TEMPLATE_MOUNT, MODEL_MOUNT

Fields = dict[str, Any]


def model_volumes(model: Model) -> list[Fields]:
    """The volumes that a model needs, read-only all of them."""
    return [*_source_volumes(model.source), *_chat_template_volumes(model)]


def model_mounts(model: Model) -> list[Fields]:
    """Where these volumes go."""
    paths = {"model": MODEL_MOUNT, "chat-template": CHAT_TEMPLATE_MOUNT}
    return [
        {"name": volume["name"], "mountPath": paths[volume["name"]], "readOnly": True}
        for volume in model_volumes(model)
    ]


def _source_volumes(source: ModelSource) -> list[Fields]:
    if claim := source.persistent_volume_claim:
        return [{"name": "model", "persistentVolumeClaim": {"claimName": claim.claim_name, "readOnly": True}}]
    if image := source.image:
        return [{"name": "model", "image": {"reference": image.reference, "pullPolicy": image.pull_policy}}]
    if folder := source.host_path:
        return [{"name": "model", "hostPath": {"path": folder.path, "type": "Directory"}}]
    return []


def _chat_template_volumes(model: Model) -> list[Fields]:
    template = model.chat_template
    if template is None or template.config_map is None:
        return []
    key = template.config_map.key
    config_map = {"name": template.config_map.name, "items": [{"key": key, "path": key}]}
    return [{"name": "chat-template", "configMap": config_map}]
