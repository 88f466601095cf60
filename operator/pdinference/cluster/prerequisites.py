"""Which children must be in order before another one is applied, read from the manifests themselves.

A pod runs with all that its service account may do. So a workload is not applied before its account, and every binding
of that account, is known to be ours; and a binding is not applied before its role and its accounts are. Otherwise pods
would run under a stranger's account, or a stranger's account would get our rights.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from pdinference.cluster.kinds import ROLE_BINDING, SERVICE_ACCOUNT, WORKLOADS, ChildKey

Json = Mapping[str, Any]


def prerequisites(manifests: Iterable[tuple[ChildKey, Json]]) -> dict[ChildKey, frozenset[ChildKey]]:
    """What each of these children needs to be in order first; one that needs nothing is left out."""
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
    """The account that the workload's pods run under; None for the namespace's default."""
    pod = ((workload.get("spec") or {}).get("template") or {}).get("spec") or {}
    name = pod.get("serviceAccountName")
    return ChildKey(SERVICE_ACCOUNT.name, namespace, name) if name else None
