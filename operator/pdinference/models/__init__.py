"""Programs in pods beside vLLM that download a model to a cache, check it, and collect facts about it."""
