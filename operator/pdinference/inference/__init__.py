"""The reconcile of a PDInference: snapshot, plan, execution, status."""
