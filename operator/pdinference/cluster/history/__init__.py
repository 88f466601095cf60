"""The history of each PDInference: its valid specs, as ControllerRevisions."""
