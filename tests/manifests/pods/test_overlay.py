"""Overlays change the fields that they contain, and no others."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.manifests.pods.overlay import merged

POD: dict[str, Any] = {
    "metadata": {"labels": {"a": "1"}},
    "spec": {
        "tolerations": [{"key": "gpu"}],
        "containers": [{"name": "vllm", "image": "x", "env": [{"name": "A", "value": "1"}], "args": ["--a", "--b"]}],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    },
}


def overlaid(**spec: Any) -> dict[str, Any]:
    result: dict[str, Any] = merged(POD, {"spec": spec})["spec"]
    return result


def test_maps_are_merged() -> None:
    assert merged(POD, {"metadata": {"labels": {"b": "2"}}})["metadata"]["labels"] == {"a": "1", "b": "2"}


def test_a_container_of_the_same_name_is_changed_in_place() -> None:
    (container,) = overlaid(containers=[{"name": "vllm", "env": [{"name": "B", "value": "2"}]}])["containers"]
    assert container["image"] == "x"
    assert [variable["name"] for variable in container["env"]] == ["A", "B"]


def test_other_containers_and_volumes_are_added_after_ours() -> None:
    assert [c["name"] for c in overlaid(containers=[{"name": "side-car"}])["containers"]] == ["vllm", "side-car"]
    assert [v["name"] for v in overlaid(volumes=[{"name": "data"}])["volumes"]] == ["tmp", "data"]


def test_tolerations_are_added() -> None:
    assert overlaid(tolerations=[{"key": "spot"}])["tolerations"] == [{"key": "gpu"}, {"key": "spot"}]


def test_lists_without_names_are_replaced() -> None:
    (container,) = overlaid(containers=[{"name": "vllm", "args": ["--c"]}])["containers"]
    assert container["args"] == ["--c"]


@pytest.mark.parametrize("nonsense", ["x", 3, ["x"], {"a": 1}, [[]], [{"name": []}], [{"name": {}}]])
def test_nonsense_is_left_for_the_api_server_to_refuse(nonsense: Any) -> None:
    assert overlaid(containers=nonsense)["containers"] == nonsense


JSON = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "spec", "containers", "volumes", "env"]), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "x"]), JSON))
def test_merging_never_fails_and_changes_neither_side(overlay: dict[str, Any]) -> None:
    before = deepcopy((POD, overlay))
    merged(POD, overlay)
    assert (POD, overlay) == before


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "x"]), JSON))
def test_an_empty_overlay_changes_nothing(pod: dict[str, Any]) -> None:
    assert merged(pod, {}) == pod
