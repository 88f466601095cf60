"""Facts about a model without its files."""

import json
from typing import Any

import pytest

from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.status import CheckpointStatus, KnownModel, ModelStatus
from pdinference.memory import Checkpoint, StatedWeights, StoredFiles, compact_config, known_facts, model_facts
from pdinference.memory.model.config import CONFIG_KEYS, NESTED, PRESENCE_KEYS
from tests.memory import configs, newer_configs

CONFIGS = {
    name: value for name, value in (vars(configs) | vars(newer_configs)).items() if name.isupper() and name[0] != "_"
}
LLAMA = {"huggingFace": {"repository": "meta-llama/Llama-3.1-8B"}}


def spec(source: dict[str, Any] | None = None, **model: Any) -> Spec:
    return Spec.model_validate({"model": {"source": source or LLAMA, **model}})


def status(source: dict[str, Any] | None = None, checkpoint: CheckpointStatus | None = None) -> dict[str, Any]:
    identity = spec(source).model.source.identity()
    facts = KnownModel(source=identity, config=compact_config(configs.LLAMA_8B), checkpoint=checkpoint)
    return ModelStatus(facts=facts).model_dump(mode="json", by_alias=True, exclude_none=True)


class _Watched(dict[str, Any]):
    """Records which members are read."""

    def __init__(self, content: dict[str, Any], read: set[str]) -> None:
        super().__init__(content)
        self._read = read

    def get(self, key: str, default: Any = None) -> Any:
        self._read.add(key)
        return super().get(key, default)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_compact_config_gives_the_same_facts(config: dict[str, Any]) -> None:
    chatter = {"architectures": ["X"], "rope_theta": 500000.0, "transformers_version": "5"}
    compact = compact_config(config | chatter)
    assert model_facts(compact) == model_facts(config | chatter)
    assert not chatter.keys() & compact.keys()
    assert len(json.dumps(compact)) < 3000


def test_a_nested_config_and_towers_stay_visible() -> None:
    whole = {"model_type": "m", "text_config": configs.LLAMA_8B, "vision_config": {"hidden_size": 1152}}
    assert model_facts(compact_config(whole)) == model_facts(whole)
    assert compact_config(whole)["vision_config"] == {"hidden_size": 1152}


@pytest.mark.parametrize("vision", [{"depth": "27"}, {"other": 1}, True, [3]], ids=str)
def test_a_tower_whose_members_do_not_fit_stays_visible(vision: Any) -> None:
    whole = {"model_type": "qwen3_vl", "text_config": configs.LLAMA_8B, "vision_config": vision}
    assert compact_config(whole)["vision_config"] is True
    assert model_facts(compact_config(whole)).has_more == ("vision_config",)


def test_a_window_that_is_switched_off_stays_off_without_a_null() -> None:
    off = configs.GEMMA2_9B | {"sliding_window": None}
    compact = compact_config(off)
    assert None not in compact.values()
    assert model_facts(compact).windows == model_facts(off).windows == (None,) * 42


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_every_member_that_is_read_is_kept(config: dict[str, Any]) -> None:
    read: set[str] = set()
    model_facts(_Watched(config, read))
    kept = CONFIG_KEYS | PRESENCE_KEYS | {*NESTED, "quantization_config"}
    assert read <= kept


def test_nothing_is_known_at_first() -> None:
    assert known_facts(spec(), None) == (None, None)
    assert known_facts(spec(), {}) == (None, None)


def test_the_status_counts_for_the_source_that_it_is_about() -> None:
    config, checkpoint = known_facts(spec(), status(checkpoint=CheckpointStatus(elements=7, other_bytes=3)))
    assert config == configs.LLAMA_8B
    assert checkpoint == Checkpoint(elements=7, other_bytes=3)
    assert known_facts(spec(), status())[1] is None
    other = {"huggingFace": {"repository": "meta-llama/Llama-3.1-70B"}}
    assert known_facts(spec(other), status()) == (None, None)


def test_sizes_of_files_are_kept_in_the_status() -> None:
    sizes = CheckpointStatus(suffix=".bin", files=2, file_bytes=30)
    assert known_facts(spec(), status(checkpoint=sizes))[1] == StoredFiles(".bin", 2, 30)


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"elements": 0},  # what an older CRD leaves of sizes that it does not know
        {"suffix": ".bin", "files": 2},
        {"suffix": ".bin", "files": 2, "fileBytes": 2**60},
        {"suffix": "\x1b[31m", "files": 2, "fileBytes": 30},
        {"suffix": ".bin", "files": -2, "fileBytes": 30},
        {"suffix": ".bin", "files": "2", "fileBytes": [30]},
        [".bin", 2, 30],
    ],
    ids=str,
)
def test_sizes_that_make_no_sense_are_not_known(found: Any) -> None:
    reported = status()
    reported["facts"]["checkpoint"] = found
    config, checkpoint = known_facts(spec(), reported)
    assert config == configs.LLAMA_8B
    assert checkpoint is None


def test_another_token_is_not_another_model() -> None:
    with_token = {"huggingFace": {**LLAMA["huggingFace"], "tokenSecret": {"name": "hub", "key": "token"}}}
    assert known_facts(spec(with_token), status())[0] is not None


def test_what_the_user_states_wins() -> None:
    stated = spec(architecture={"config": configs.LLAMA_1B, "weightsBytes": 1000})
    assert known_facts(stated, status()) == (configs.LLAMA_1B, StatedWeights(1000))
    assert known_facts(spec(architecture={"config": configs.LLAMA_1B}), status()) == (configs.LLAMA_1B, None)
