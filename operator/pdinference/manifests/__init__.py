"""From a resource to the objects that Kubernetes shall run: pure, deterministic, no cluster needed."""

from pdinference.manifests.render import Rendered, render
from pdinference.manifests.settings import KedaSettings, RenderSettings
from pdinference.manifests.templates import Manifest

__all__ = ["KedaSettings", "Manifest", "RenderSettings", "Rendered", "render"]
