"""The model's shape: read from its `config.json`, whatever the architecture."""
