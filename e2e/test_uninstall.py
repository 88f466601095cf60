"""What is left of the tiny example when it is deleted. Other tests compare answers with its, so this comes last."""

import pytest

from e2e.conftest import NAME, Serving
from e2e.waiting import wait_until
from pdinference.api.names import LABEL_NAME

pytestmark = pytest.mark.timeout(2400)


def test_deleting_the_resource_leaves_nothing(serving: Serving) -> None:
    serving.kubectl.run("delete", "pdi", NAME, "--timeout=300s", timeout=310)
    kinds = "pods,statefulsets,deployments,replicasets,services,serviceaccounts,roles,rolebindings,networkpolicies"
    kinds += ",poddisruptionbudgets,controllerrevisions,endpointslices"

    def left() -> list[str]:
        items = serving.kubectl.get(kinds, "-l", f"{LABEL_NAME}={NAME}")["items"]
        return [f"{item['kind']}/{item['metadata']['name']}" for item in items]

    wait_until("all children to be gone", lambda: not left(), timeout=240)
