"""All hostile documents, by the expected result."""

from tests.hostile.model_configs import MODEL_CONFIGS
from tests.hostile.resources import RESOURCES

CORPUS = {**RESOURCES, **MODEL_CONFIGS}
REFUSED = {name: entry for name, entry in CORPUS.items() if entry.refused}
HARMLESS = {name: entry for name, entry in CORPUS.items() if entry.harmless}
