"""How long a step of an engine takes, a transfer of KV cache, and what surrounds them. Pure."""
