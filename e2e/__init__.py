"""The whole, for real: a local cluster, the operator from its chart, vLLM on CPU, requests through the router."""
