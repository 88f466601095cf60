"""The model's weights: their size in files, and on a device once vLLM has split them."""
