"""`spec.parameter` and `spec.decode`: the settings of a role."""
