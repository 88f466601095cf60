"""Specs that together set every field of the CRD, and the schema of the spec."""

from pathlib import Path
from typing import Any

import yaml

from pdinference.api.crd import custom_resource_definition

Json = dict[str, Any]

SPECS: dict[str, Json] = yaml.safe_load((Path(__file__).parent / "every_field.yaml").read_text())
SCHEMA: Json = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
