"""What runs in pods beside vLLM: brings a model into a cache, checks it, and reads what is known of it."""
