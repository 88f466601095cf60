"""The load of P and D pods: read from vLLM, made into signals, and served to HPAs as external metrics."""
