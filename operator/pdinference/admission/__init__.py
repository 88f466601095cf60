"""The webhook: refuses, while `kubectl apply` waits, what cannot work."""

from pdinference.admission.webhook import WEBHOOK_RULES, admission_routes

__all__ = ["WEBHOOK_RULES", "admission_routes"]
