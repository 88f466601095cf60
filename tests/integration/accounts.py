"""Accounts with rights of their own, in the place of users."""

from pathlib import Path

import yaml

from pdinference.cluster.client import Json
from tests.integration.world import World

_RBAC = "rbac.authorization.k8s.io"


async def user(world: World, folder: Path, role: Json) -> Path:
    """A kubeconfig of an account in the namespace to which a role is bound.

    Args:
        world: The namespace.
        folder: Where the kubeconfig is written.
        role: The `roleRef`, without its API group.
    """
    namespace, name = world.namespace, "user"
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await world.api.create(accounts, {"metadata": {"name": name}})
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _RBAC, **role},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }
    await world.api.create(f"/apis/{_RBAC}/v1/namespaces/{namespace}/rolebindings", binding)
    token = (await world.api.create(f"{accounts}/{name}/token", {"spec": {}}))["status"]["token"]
    config = yaml.safe_load(world.cluster.kubeconfig.read_text(encoding="utf-8"))
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path
