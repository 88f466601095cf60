"""The engines of a pod, from its ports."""

from typing import Any

from pdinference.api import names
from pdinference.api.engines import PodEngine, engines_of, slots
from pdinference.api.names import Role
from pdinference.api.v1alpha1.transfer import HostLocal

_LABELS = {names.LABEL_ROLE: "decode"}


def _container(name: str, *ports: tuple[str, int]) -> dict[str, Any]:
    return {"name": name, "ports": [{"name": port, "containerPort": number} for port, number in ports]}


def _pod(*containers: dict[str, Any], ready: tuple[str, ...] = (), condition: str = "False") -> dict[str, Any]:
    return {
        "metadata": {"labels": _LABELS},
        "spec": {"containers": list(containers)},
        "status": {
            "conditions": [{"type": "Ready", "status": condition}],
            "containerStatuses": [{"name": one["name"], "ready": one["name"] in ready} for one in containers],
        },
    }


def test_an_ordinary_pod_has_one_engine_which_is_ready_with_the_pod() -> None:
    vllm, sidecar = _container("vllm", ("http", 8000)), _container("log", ("http", 9))
    assert engines_of(_pod(sidecar, vllm, ready=("vllm",))) == (PodEngine(Role.DECODE, "http", 8000, "vllm", False),)
    assert engines_of(_pod(vllm, sidecar, condition="True"))[0].ready


def test_a_pod_without_status_and_ports_has_one_engine() -> None:
    assert engines_of({"metadata": {"labels": _LABELS}}) == (PodEngine(Role.DECODE, "http", 8000, "vllm", False),)


def test_engines_with_containers_of_their_own_are_ready_each_by_itself() -> None:
    decode = _container("decode-0", ("decode-0", 8000), ("kv-decode-0", 5600))
    parameter = _container("parameter-0", ("parameter-0", 8001), ("kv-parameter-0", 5664))
    assert engines_of(_pod(decode, parameter, _container("log"), ready=("decode-0",), condition="False")) == (
        PodEngine(Role.DECODE, "decode-0", 8000, "decode-0", True),
        PodEngine(Role.PARAMETER, "parameter-0", 8001, "parameter-0", False),
    )


def test_no_engine_is_ready_on_a_node_that_stopped_reporting() -> None:
    """The control plane then sets the pod's condition, and leaves the last states of the containers."""
    pod = _pod(_container("decode-0", ("decode-0", 8000)), ready=("decode-0",))
    assert [one.ready for one in engines_of(pod)] == [True]
    pod["status"]["conditions"].append({"type": "ContainersReady", "status": "True"})
    assert [one.ready for one in engines_of(pod)] == [False]


def test_engines_of_one_container_share_its_state() -> None:
    launcher = _container("vllm", ("decode-0", 8000), ("decode-1", 8001), ("parameter-0", 8002), ("launcher", 8100))
    engines = engines_of(_pod(launcher, ready=("vllm",)))
    assert [(one.role, one.port, one.container, one.ready) for one in engines] == [
        (Role.DECODE, 8000, "vllm", True),
        (Role.DECODE, 8001, "vllm", True),
        (Role.PARAMETER, 8002, "vllm", True),
    ]


def test_the_first_d_has_the_port_of_an_ordinary_engine() -> None:
    assert [(one.name, one.port) for one in slots(HostLocal(parameter=1, decode=2))] == [
        ("decode-0", 8000),
        ("decode-1", 8001),
        ("parameter-0", 8002),
    ]
