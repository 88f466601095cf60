"""From a resource to the objects that Kubernetes shall run: pure, deterministic, no cluster needed."""
