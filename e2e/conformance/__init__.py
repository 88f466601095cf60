"""`make conformance`: evidence for the checklist of the Kubernetes AI Conformance programme (docs/conformance.md)."""
