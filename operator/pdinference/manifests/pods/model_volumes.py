"""Volumes and mounts of a pod for its model.

Tests: tests/manifests/test_render.py, tests/manifests/test_model_preparation.py
"""

from typing import Any

from pdinference.api.v1alpha1.model import Model
from pdinference.engine.model_cache import MODEL_MOUNT
from pdinference.engine.model_options import CHAT_TEMPLATE_MOUNT

Fields = dict[str, Any]


def model_volumes(model: Model) -> list[Fields]:
    """Volumes for the model."""
    writes = model.cache is not None and model.cache.host_path is not None
    return [*model_volume(model, read_only=not writes), *_chat_template_volumes(model)]


def model_mounts(model: Model) -> list[Fields]:
    """Mounts of these volumes in the vLLM container. All are read-only."""
    paths = {"model": MODEL_MOUNT, "chat-template": CHAT_TEMPLATE_MOUNT}
    return [
        {"name": volume["name"], "mountPath": paths[volume["name"]], "readOnly": True}
        for volume in model_volumes(model)
    ]


def model_volume(model: Model, *, read_only: bool) -> list[Fields]:
    """The volume with the model or its cache; empty if vLLM downloads the model, or the image contains it."""
    source, cache = model.source, model.cache
    if claim := source.persistent_volume_claim or (cache and cache.persistent_volume_claim):
        return [{"name": "model", "persistentVolumeClaim": {"claimName": claim.claim_name, "readOnly": read_only}}]
    if image := source.image:
        return [{"name": "model", "image": {"reference": image.reference, "pullPolicy": image.pull_policy}}]
    if folder := source.host_path or (cache and cache.host_path):
        return [{"name": "model", "hostPath": {"path": folder.path, "type": "Directory"}}]
    return []


def _chat_template_volumes(model: Model) -> list[Fields]:
    template = model.chat_template
    if template is None or template.config_map is None:
        return []
    key = template.config_map.key
    config_map = {"name": template.config_map.name, "items": [{"key": key, "path": key}]}
    return [{"name": "chat-template", "configMap": config_map}]
