"""`pdinference explain`: shows the next actions of the operator for a PDInference, with reasons. Read-only."""
