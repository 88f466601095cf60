"""The files of a model: which ones vLLM loads, and what their beginnings hold."""
