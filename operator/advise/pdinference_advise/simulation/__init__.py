"""A discrete-event simulation of vLLM engines, the ways of their KV cache, and the router in front of them."""
