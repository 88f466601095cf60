"""KV cache from pipeline stages of P: pushed, by a connector that tells D how many stages there are."""

from functools import cache
from importlib.resources import files
from typing import Any

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.engine.command import literal

_MODULE = "pdinference_staged_push"
_FOLDER = "/tmp/pdinference"  # noqa: S108 - a volume of the pod's own


def pushes_from_stages(resource: PDInference) -> bool:
    """Whether vLLM has to push the KV cache: D cannot pull it from stages ("Number of KV layers must match")."""
    return resource.spec.transfer.connector == "Nixl" and resource.spec.parameter.parallelism.pipeline > 1


def push_config(resource: PDInference, role: Role) -> dict[str, Any]:
    """The part of `--kv-transfer-config` that names the connector; P's is vLLM's own."""
    if role is Role.PARAMETER:
        return {"kv_connector": "NixlPushConnector"}
    return {
        "kv_connector": "StagedPushConnector",
        "kv_connector_module_path": _MODULE,
        "kv_connector_extra_config": {"parameter_stages": resource.spec.parameter.parallelism.pipeline},
    }


def with_connector(program: tuple[str, ...]) -> tuple[str, ...]:
    """What runs vLLM where it, and each process that it starts, can import D's connector.

    The image need not have it, and a file would need a ConfigMap, to which the operator has no right.
    """
    launcher, connector = (literal(_script(name)) for name in ("with_module", "staged_push"))
    return ("python3", "-I", "-c", launcher, _MODULE, connector, _FOLDER, *program)


@cache
def _script(name: str) -> str:
    return files("pdinference.engine").joinpath(f"scripts/{name}.py").read_text(encoding="utf-8")
