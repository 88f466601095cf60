"""docs/older-models.md: the conversion and the repair of the page do what it says."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.conftest import REPOSITORY

_PAGE: Final = (REPOSITORY / "docs" / "older-models.md").read_text(encoding="utf-8")
_BLOCKS: Final = [textwrap.dedent(block) for block in re.findall(r"(?:^    .*\n|^\n)+", _PAGE, re.MULTILINE)]
_FILES: Final = ("tokenization_baichuan.py", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json")
_PUBLISHED: Final = """\
from transformers import PreTrainedTokenizer


class spm:
    class SentencePieceProcessor:  # in place of the package: only when it is loaded matters here
        def __init__(self, **kwargs):
            self.words = []

        def Load(self, file):
            self.words = open(file).read().split()


class BaichuanTokenizer(PreTrainedTokenizer):
    vocab_files_names = {"vocab_file": "tokenizer.model"}

    def __init__(self, vocab_file, sp_model_kwargs=None, **kwargs):
        self.sp_model_kwargs = {} if sp_model_kwargs is None else sp_model_kwargs
        super().__init__(**kwargs)
        self.vocab_file = vocab_file
        self.sp_model = spm.SentencePieceProcessor(**self.sp_model_kwargs)
        self.sp_model.Load(vocab_file)

    @property
    def vocab_size(self):
        return len(self.sp_model.words)

    def get_vocab(self):
        return {word: number for number, word in enumerate(self.sp_model.words)}
"""


def block(word: str) -> str:
    """The block of the page that has this word."""
    (found,) = (text for text in _BLOCKS if word in text)
    return found


def packed(name: str, tensors: dict[str, Any]) -> dict[str, Any]:
    """Llama's tensors of a layer or a model under baichuan's names."""
    import torch  # noqa: PLC0415 - present for the tests of vLLM only

    others = {key: value for key, value in tensors.items() if not re.search(r"\.[qkv]_proj\.", key)}
    packs = {
        key.replace("q_proj", name): torch.cat([tensors[key.replace("q_proj", f"{part}_proj")] for part in "qkv"])
        for key in tensors
        if ".q_proj." in key
    }
    return others | packs


@pytest.mark.vllm
def test_the_converted_weights_are_llamas(tmp_path: Path) -> None:
    import torch  # noqa: PLC0415
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415

    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
    llama = LlamaForCausalLM(LlamaConfig(vocab_size=40, **shape)).eval()
    source = tmp_path / "baichuan-7B"
    llama.config.save_pretrained(source)
    tensors = packed("W_pack", llama.state_dict()) | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    halves = sorted(tensors)[::2], sorted(tensors)[1::2]
    for number, names in enumerate(halves):
        torch.save({name: tensors[name] for name in names}, source / f"pytorch_model-0000{number}.bin")
    for name in _FILES:
        (source / name).write_text("{}")
    subprocess.run([sys.executable, "-c", block("torch.load")], cwd=tmp_path, check=True)
    converted = LlamaForCausalLM.from_pretrained(tmp_path / "baichuan-7b-llama", dtype=torch.float32).eval()
    tokens = torch.arange(40).unsqueeze(0)
    with torch.no_grad():
        assert torch.equal(converted(tokens).logits, llama(tokens).logits)


@pytest.mark.vllm
def test_the_repaired_tokenizer_loads_its_vocabulary_first(tmp_path: Path) -> None:
    (container,) = yaml.safe_load(block("kind: Job"))["spec"]["template"]["spec"]["containers"]
    (script,) = container["args"]
    source = tmp_path / re.search(r"from=(\S+)", script)[1]  # type: ignore[index]
    source.mkdir(parents=True)
    for name in _FILES:
        (source / name).write_text("a b c" if name == "tokenizer.model" else "{}")
    (source / _FILES[0]).write_text(_PUBLISHED)
    here = script.replace(f"{container['workingDir']}/", f"{tmp_path}/")
    subprocess.run([*container["command"], here], cwd=tmp_path, check=True)
    repaired = tmp_path / re.search(r" to=(\S+)", script)[1]  # type: ignore[index]
    load = "from tokenization_baichuan import *; print(len(BaichuanTokenizer('tokenizer.model')))"
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    results = [
        subprocess.run(
            [sys.executable, "-c", load], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        for folder in (source, repaired)
    ]
    assert "sp_model" in results[0].stderr or "cannot be interpreted as an integer" in results[0].stderr
    assert results[1].stdout.strip() == "3", results[1].stderr
