"""Versions and schemas of the generated CRDs."""

from pdinference.api.crd import (
    batch_definition,
    custom_resource_definition,
    scaler_definition,
)

(VERSION,) = custom_resource_definition()["spec"]["versions"]
(BATCH_VERSION,) = batch_definition()["spec"]["versions"]
(SCALER_VERSION,) = scaler_definition()["spec"]["versions"]
ROOT, BATCH_ROOT, SCALER_ROOT = (
    version["schema"]["openAPIV3Schema"] for version in (VERSION, BATCH_VERSION, SCALER_VERSION)
)
