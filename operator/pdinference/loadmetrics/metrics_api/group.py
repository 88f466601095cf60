"""The API group that the operator serves, apart from its handlers, so that a client needs none of their packages.

Tests: tests/loadmetrics/test_metrics_rights.py
"""

from typing import Final

GROUP: Final = "external.metrics.k8s.io"
VERSION: Final = "v1beta1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
