"""The webhook: refuses, while `kubectl apply` waits, what cannot work."""
