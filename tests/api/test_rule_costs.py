"""What older API servers ask of the CRD's rules in CEL; `make test-integration KUBERNETES=1.30` uses a real one."""

import re
from collections.abc import Iterator
from typing import Any

from pdinference.api.crd import definitions

# Of https://kubernetes.io/docs/reference/using-api/cel/#escaping.
RESERVED = "true false null in as break const continue else for function if import let loop package namespace return"
UNESCAPED = re.compile(rf"\.({'|'.join(RESERVED.split())})\b")


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


def test_rules_in_cel_escape_reserved_words() -> None:
    """1.30 knows the field `namespace` only as `__namespace__`; 1.36 takes both."""
    rules = [
        rule["rule"]
        for crd in definitions().values()
        for node in nodes(crd)
        for rule in node.get("x-kubernetes-validations", ())
        if isinstance(rule, dict) and "rule" in rule
    ]
    assert any("__namespace__" in rule for rule in rules)
    assert [rule for rule in rules if UNESCAPED.search(rule)] == []
