"""A value for an HPA is an integer number of thousandths within 63 bits."""

import pytest

from pdinference.loadmetrics.metrics_api.api import quantity


@pytest.mark.parametrize(("value", "written"), [(0.0, "0m"), (1.4, "1400m"), (1e12, "1000000000000000m"), (1e-9, "0m")])
def test_a_value_is_written_as_kubernetes_reads_it(value: float, written: str) -> None:
    assert quantity(value) == written
