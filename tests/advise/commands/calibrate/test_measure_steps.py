"""The program that measures steps, as far as it needs no vLLM. benchmarks/on_gpu runs all of it."""

import json
from pathlib import Path

from pdinference_advise.commands.calibrate.measure_steps import sums, write_model
from tests.advise.commands.calibrate.test_calibrate import CONFIG


def test_metrics_are_summed_over_labels_without_buckets() -> None:
    text = '# HELP a b\na{x="1"} 2\na{x="2"} 3\nb_bucket{le="1"} 9\nb_sum 0.5\n'
    assert sums(text) == {"a": 5.0, "b_sum": 0.5}


def test_the_model_of_the_program_has_a_word_for_each_token(tmp_path: Path) -> None:
    write_model(tmp_path, CONFIG)
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    assert len(tokenizer["model"]["vocab"]) == 1000
    assert json.loads((tmp_path / "config.json").read_text(encoding="utf-8")) == CONFIG
