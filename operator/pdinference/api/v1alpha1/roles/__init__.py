"""`spec.parameter` and `spec.decode`: what a role consists of."""
