"""Renders the Kubernetes objects of a resource. Pure and deterministic, without access to a cluster."""

from pdinference.manifests.render import Rendered, render
from pdinference.manifests.settings import KedaSettings, RenderSettings
from pdinference.manifests.templates import Manifest

__all__ = ["KedaSettings", "Manifest", "RenderSettings", "Rendered", "render"]
