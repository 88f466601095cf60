"""The ConfigMap for the answers of a PDBatch.

It is created and never applied, because the runner owns its data. It is not cached, because the operator watches no
ConfigMaps. The owner of an existing one is read with a patch that changes nothing.

Tests: tests/batch/test_reconcile.py, tests/integration/test_batch_output.py
"""

from pdinference.cluster.apply import Parent
from pdinference.cluster.child import child_key
from pdinference.cluster.client import ApiServer, Json
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import CONFIG_MAP
from pdinference.cluster.outcome import Outcome
from pdinference.cluster.state.records import controller_of
from pdinference.planning.observed import Failure

_ALREADY_EXISTS = "AlreadyExists"


async def ensure_output(api: ApiServer, manifest: Json | None, parent: Parent) -> Outcome:
    """Ensure that the ConfigMap exists and belongs to the batch; nothing without a manifest."""
    outcome = Outcome()
    if manifest is None:
        return outcome
    key = child_key(manifest)
    try:
        await api.create(CONFIG_MAP.path(key.namespace), manifest)
    except ApiError as error:
        if error.reason != _ALREADY_EXISTS:
            outcome.failed(key, error)
            return outcome
    else:
        outcome.applied.append(key)
        return outcome
    try:
        metadata = (await api.merge(CONFIG_MAP.path(key.namespace, key.name), {}))["metadata"]
    except ApiError as error:
        outcome.failed(key, error)
        return outcome
    owner, owner_uid = controller_of(metadata)
    if "deletionTimestamp" in metadata or (owner == parent.owner and owner_uid != parent.uid):
        outcome.waiting.append(key)
    elif owner_uid != parent.uid:
        outcome.failures.append(Failure(key.kind, key.name, "NameConflict", _taken(key.namespace, key.name)))
    return outcome


def _taken(namespace: str, name: str) -> str:
    return (
        "a ConfigMap of this name exists and does not belong to this PDBatch, so it is not changed. Delete it "
        f"(`kubectl delete -n {namespace} configmap {name}`), or recreate the PDBatch with another "
        "spec.output.configMap.name."
    )
