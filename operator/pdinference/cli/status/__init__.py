"""`pdinference status`: a PDInference, its pods, and what is not as it should be."""
