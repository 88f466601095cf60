"""The validating webhook: refuses, while `kubectl apply` waits, what cannot work."""

from pdinference.admission.webhook import admission_routes

__all__ = ["admission_routes"]
