"""Selectors of nodes, pods and volumes by their labels.

Tests: tests/manifests/test_pod_rules.py, tests/integration/test_edges.py
"""

from pdinference.manifests.pod_rules.shapes import (
    LABEL_VALUE,
    Check,
    list_of,
    map_of,
    object_of,
    only,
    qualified_name,
)

EXPRESSIONS: Check = list_of(
    object_of(
        {
            "key": qualified_name,
            "operator": only("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
            "values": list_of(LABEL_VALUE),
        },
        required=("key", "operator"),
    ),
    key="key",
    most=32,
)
LABEL_SELECTOR: Check = object_of(
    {"matchLabels": map_of(qualified_name, LABEL_VALUE, most=32), "matchExpressions": EXPRESSIONS}
)
