"""`pdinference adapter-rules`."""

import yaml
from click.testing import CliRunner

from pdinference.cli.adapter_rules import adapter_rules_command
from pdinference.planning.scaling.gauges import adapter_rules
from tests.conftest import REPOSITORY


def test_it_prints_what_the_chart_has() -> None:
    file = REPOSITORY / "charts" / "pdinference-operator" / "files" / "prometheus-adapter-rules.yaml"
    assert CliRunner().invoke(adapter_rules_command).output == file.read_text(encoding="utf-8")


def test_signals_come_from_the_namespace_of_the_operator() -> None:
    found = CliRunner().invoke(adapter_rules_command, ["--operator-namespace=elsewhere"])
    assert yaml.safe_load(found.output) == adapter_rules("elsewhere")
    assert 'namespace="elsewhere"' in found.output.replace("'", '"')
