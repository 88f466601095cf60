"""Predictions of `pdinference advise` beside those of AIConfigurator and AISimulate, for all measured loads."""
