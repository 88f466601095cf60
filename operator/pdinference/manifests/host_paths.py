"""Checks of the host paths in a resource against the installation policy.

Tests: tests/manifests/test_policy.py
"""

from collections.abc import Iterator
from pathlib import PurePosixPath

from pdinference.api import names
from pdinference.api.installation_policy import AllowedHostPath, Policy
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.validation import Problem


def host_path_problems(resource: PDInference, policy: Policy) -> Iterator[Problem]:
    """Host paths that the installation policy does not allow."""
    namespace = resource.metadata.namespace
    for field, path, writes in _named(resource):
        entries = [entry for entry in policy.allowed_host_paths if entry.covers(path, namespace)]
        if not entries:
            yield Problem(
                field,
                f"The installation policy does not allow the host path {path} (allowed: {_shown(policy, namespace)}). "
                "Use an allowed path, or ask the administrator to add it to the chart value allowedHostPaths.",
            )
        elif writes and all(entry.read_only for entry in entries):
            yield Problem(
                field,
                f"Pods need to write to {path}, but the installation policy allows it read-only. Ask the administrator "
                "to add exactly this folder to the chart value allowedHostPaths with readOnly: false.",
            )
    yield from _of_code(resource, policy)


def _of_code(resource: PDInference, policy: Policy) -> Iterator[Problem]:
    """A folder of compiled code that is one of models, or that others may write to."""
    compiled, namespace = resource.spec.engine.compile_cache, resource.metadata.namespace
    if compiled is None or compiled.host_path is None:
        return
    path, field = compiled.host_path.path, "spec.engine.compileCache.hostPath.path"
    written = [e for e in policy.allowed_host_paths if not e.read_only and PurePosixPath(e.path) == PurePosixPath(path)]
    if path in {other for _, other, _ in _named(resource)}:
        yield Problem(field, "This folder holds models or KV cache. Use another folder.")
    elif not written or any(entry.namespaces != [namespace] for entry in written):
        wanted = f"{{path: {path}, readOnly: false, namespaces: [{namespace}]}}"
        yield Problem(
            field,
            "The installation policy does not allow this folder for compiled code. Engines run that code, so no other "
            f"namespace may write to the folder. Ask the administrator to add {wanted} to the chart value "
            "allowedHostPaths, and to remove other writable entries of this folder.",
        )


def _named(resource: PDInference) -> Iterator[tuple[str, str, bool]]:
    """Field and path of each host path but that of compiled code, and whether pods write to it."""
    model = resource.spec.model
    if (source := model.source.host_path) is not None:
        yield "spec.model.source.hostPath.path", source.path, False
    if model.cache is not None and (folder := model.cache.host_path) is not None:
        yield "spec.model.cache.hostPath.path", folder.path, True
    for role in names.ENGINE_ROLES:
        tiers = resource.spec.of(role).kv_tiers
        if tiers and tiers.disk and tiers.disk.host_path:
            yield f"spec.{role}.kvTiers.disk.hostPath", tiers.disk.host_path, True


def _shown(policy: Policy, namespace: str) -> str:
    """The folders that this namespace may mount. Folders of other namespaces are not disclosed."""
    known = [_described(e) for e in policy.allowed_host_paths if not e.namespaces or namespace in e.namespaces]
    return ", ".join(known) or "none"


def _described(entry: AllowedHostPath) -> str:
    return f"{entry.path} and below, read-only" if entry.read_only else f"{entry.path} itself"
