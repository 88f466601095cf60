"""`pdinference explain`: what the operator would do next about a PDInference, and why. Writes nothing."""
