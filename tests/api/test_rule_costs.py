"""CEL costs of the CRD's rules for older API servers; `make test-integration KUBERNETES=1.30` uses a real one."""

from collections.abc import Iterator
from typing import Any

from pdinference.api.crd import definitions


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a schema."""
    if isinstance(value, dict):
        yield value
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from nodes(child)


def test_no_rule_in_cel_reads_the_text_of_an_int_or_string() -> None:
    """On 1.30 `maxLength` does not count for those: each such rule was 6.5 times over the limit."""
    found = [node for crd in definitions().values() for node in nodes(crd) if node.get("x-kubernetes-int-or-string")]
    assert found
    costly = [node for node in found if "string(self)" in str(node.get("x-kubernetes-validations"))]
    assert costly == []
