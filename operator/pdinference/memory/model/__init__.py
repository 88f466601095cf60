"""The model's shape, read from its `config.json`, in one form for all architectures."""
