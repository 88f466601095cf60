"""Prerequisites of children, from their manifests: the children that must be in order before another one is applied.

A pod has all permissions of its service account. So a workload is applied only when its account and all bindings of the
account belong to the resource. A binding is applied only when its role and its accounts do. Otherwise pods could run
under a foreign account, or a foreign account could get the permissions.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from pdinference.cluster.kinds import ROLE_BINDING, SERVICE_ACCOUNT, WORKLOADS, ChildKey

Json = Mapping[str, Any]


def prerequisites(manifests: Iterable[tuple[ChildKey, Json]]) -> dict[ChildKey, frozenset[ChildKey]]:
    """The prerequisites of each child. Children without prerequisites are left out."""
    manifests = tuple(manifests)
    found: dict[ChildKey, frozenset[ChildKey]] = {}
    of_account: defaultdict[ChildKey, set[ChildKey]] = defaultdict(set)
    for key, manifest in manifests:
        if key.kind == ROLE_BINDING.name:
            accounts = _bound_accounts(key.namespace, manifest)
            found[key] = frozenset({_role(key.namespace, manifest), *accounts})
            for account in accounts:
                of_account[account] |= {key, *found[key]}
    for key, manifest in manifests:
        if key.kind in WORKLOADS and (own := _account(key.namespace, manifest)) is not None:
            found[key] = frozenset({own, *of_account[own]})
    return found


def _role(namespace: str, binding: Json) -> ChildKey:
    reference = binding.get("roleRef") or {}
    return ChildKey(reference.get("kind", ""), namespace, reference.get("name", ""))


def _bound_accounts(namespace: str, binding: Json) -> set[ChildKey]:
    return {
        ChildKey(SERVICE_ACCOUNT.name, subject.get("namespace", namespace), subject.get("name", ""))
        for subject in binding.get("subjects") or ()
        if subject.get("kind") == SERVICE_ACCOUNT.name
    }


def _account(namespace: str, workload: Json) -> ChildKey | None:
    """The service account of the workload's pods; None for the default account."""
    pod = ((workload.get("spec") or {}).get("template") or {}).get("spec") or {}
    name = pod.get("serviceAccountName")
    return ChildKey(SERVICE_ACCOUNT.name, namespace, name) if name else None
