"""Selectors of nodes, pods and volumes by their labels."""

from pdinference.manifests.pod_rules.shapes import Check, list_of, map_of, object_of, only, text

_KEY = text(most=317)
_VALUE = text(most=63)
EXPRESSIONS: Check = list_of(
    object_of(
        {
            "key": _KEY,
            "operator": only("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
            "values": list_of(_VALUE),
        },
        required=("key", "operator"),
    ),
    key="key",
    most=32,
)
LABEL_SELECTOR: Check = object_of({"matchLabels": map_of(_KEY, _VALUE, most=32), "matchExpressions": EXPRESSIONS})
