"""The reconcile of a PDBatch."""
