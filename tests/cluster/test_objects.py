"""Objects that cannot be parsed are truncated, and all others stay unchanged."""

import json

import msgspec
import pytest

from pdinference.api.bounds import MAX_DEPTH, MAX_SPEC_BYTES
from pdinference.cluster.objects import LARGE, parsed, shallow, watch_event, why_unreadable
from pdinference.cluster.state.records import resource_record
from tests.cluster.large_objects import body, deep


@pytest.mark.parametrize("levels", [200, 1_000, 5_000, 100_000])
@pytest.mark.parametrize("brackets", [('{"a":', "}"), ("[", "]"), ('[{"]}":', "}]"), ('{"\\\\\\"{":[', "]}")])
def test_what_is_deep_is_cut_and_what_is_beside_it_is_not(levels: int, brackets: tuple[str, str]) -> None:
    text = f'{{"before":[1,"]"],"deep":{deep(levels, *brackets)},"after":{{"x":["{{",2]}}}}'
    found = json.loads(shallow(text.encode()))
    assert found["before"] == [1, "]"]
    assert found["after"] == {"x": ["{", 2]}


def test_what_is_flat_stays_as_it_is() -> None:
    data = json.dumps({"a": [{"b": "[{" * 500}] * 500}).encode()
    assert shallow(data) is data


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (deep(100_000), f"spec.a.a.a.a.a: is nested deeper than {MAX_DEPTH} levels"),
        (deep(MAX_DEPTH + 5), f"spec.a.a.a.a.a: is nested deeper than {MAX_DEPTH} levels"),
        (json.dumps({"x": "y" * 1_300_000}), "spec: is 1300009 bytes of JSON"),
        (json.dumps({"x": "y" * MAX_SPEC_BYTES}), f"spec: is {MAX_SPEC_BYTES + 8} bytes of JSON"),
        ('{"x":[' + "{}," * 400_000 + "{}]}", "spec: is 1200010 bytes of JSON"),
        ('{"x":[' + "{}," * 30_000 + "{}]}", "spec.x[16382]: exceeds the limit of 16384 values in a document"),
    ],
)
def test_a_resource_that_cannot_be_read_is_known_with_the_reason(spec: str, why: str) -> None:
    data = body(spec)
    event, watched = watch_event(b'{"type":"MODIFIED","object":%b}' % data, own=True)
    assert event == "MODIFIED"
    listed = msgspec.json.decode(shallow(data), type=msgspec.Raw)
    for found in (watched, parsed(listed, own=True)):
        record = resource_record("PDInference", found)
        assert (record.owner.name, record.uid, record.version, record.generation) == ("llama", "u", 7, 2)
        assert record.unreadable.startswith(why)
        assert record.spec == b"null"
        assert json.loads(record.status) == {"phase": "Ready"}
        assert len(json.dumps(found)) < LARGE * 2


def test_an_ordinary_resource_is_read_as_it_is() -> None:
    data = body('{"model":{"source":{"path":"/m"}}}')
    assert watch_event(b'{"type":"ADDED","object":%b}' % data, own=True) == ("ADDED", json.loads(data))
    assert why_unreadable(json.loads(data)) == ""


def test_a_large_object_loses_nothing_but_its_managed_fields() -> None:
    large = json.loads(body("{}", annotations={"a": "b" * LARGE}, managedFields=[{"manager": "x" * 1000}]))
    large["kind"] = "StatefulSet"
    large["spec"] = {"x": "y" * 1_000_000}
    data = json.dumps(large).encode()
    del large["metadata"]["managedFields"]
    assert watch_event(b'{"type":"ADDED","object":%b}' % data, own=False) == ("ADDED", large)
    assert parsed(msgspec.json.decode(data, type=msgspec.Raw), own=False) == large


def test_a_user_cannot_write_the_reason() -> None:
    """The CRD has no such field, so the API server drops it."""
    from pdinference.api.crd import definitions  # noqa: PLC0415

    for crd in definitions().values():
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        assert "unreadable" not in schema["properties"]
        assert "x-kubernetes-preserve-unknown-fields" not in schema
