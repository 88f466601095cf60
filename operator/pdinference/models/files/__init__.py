"""Files of a model: selects the files that vLLM loads, and reads their headers."""
