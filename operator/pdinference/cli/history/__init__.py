"""`pdinference history`, `diff` and `undo`: the edits of a PDInference in a cluster."""
