"""Small decoders of transformers with random weights, exported to ONNX by the tools that users have.

`python -m tests.models.decoder_exports` writes those of tests/models/decoders, as far as the installed packages can:
Optimum's and PyTorch's need ``.[llm-test]``, those of ONNX Runtime's generator onnxruntime-genai and transformers 5.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx

FOLDER = Path(__file__).parent / "decoders"
WORDS, PLACES, WINDOW = 64, 128, 12
_SPECIAL = ["<pad>", "<s>", "</s>"]
_LLAMA: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": PLACES, "bos_token_id": 1, "eos_token_id": 2,
    "pad_token_id": 0,
}  # fmt: skip
_GPT: dict[str, Any] = {
    "vocab_size": WORDS, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": PLACES, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
_OPT: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": 32, "word_embed_proj_dim": 32, "ffn_dim": 32, "num_hidden_layers": 2,
    "num_attention_heads": 2, "max_position_embeddings": PLACES, "bos_token_id": 1, "eos_token_id": 2,
    "pad_token_id": 0,
}  # fmt: skip
_GEMMA = _LLAMA | {"sliding_window": WINDOW, "query_pre_attn_scalar": 16}
_FACTORS = {"short_factor": [1.0 + k / 10 for k in range(8)], "long_factor": [1.5 + k for k in range(8)]}
CONFIGURATIONS: dict[str, Mapping[str, Any]] = {
    "llama": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "gemma2": _GEMMA,
    "gemma3_text": _GEMMA | {"layer_types": ["sliding_attention", "full_attention"]},
    "mistral": _LLAMA | {"sliding_window": WINDOW},
    "phi": _LLAMA | {"num_key_value_heads": 2, "partial_rotary_factor": 0.5},
    "gpt2": _GPT,
    "gpt_neox": _LLAMA | {"rotary_pct": 0.5},
    "opt": _OPT,
    "qwen3_moe": _LLAMA | {"moe_intermediate_size": 16, "num_experts": 3, "num_experts_per_tok": 2},
    "gpt_oss": _LLAMA
    | {"num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": WINDOW, "intermediate_size": 16}
    | {"layer_types": ["sliding_attention", "full_attention"]},
    "phi3": _LLAMA | {"original_max_position_embeddings": 64, "rope_scaling": {"type": "longrope"} | _FACTORS},
}
"""By the model type of transformers."""


def decoder(kind: str) -> Any:
    """A decoder whose weights are random, and whose next tokens vary."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**CONFIGURATIONS[kind])).float().eval()
    is_scaled = kind.startswith("gemma")  # embeddings are multiplied by the root of their size
    for name, weight in model.named_parameters():
        with torch.no_grad():
            if weight.dim() < 2:
                weight.add_(0.1 * torch.randn_like(weight))
            elif "embed" in name or "wte" in name:
                weight.normal_(0, 0.04 if is_scaled else 0.2)
            else:
                weight.normal_(0, 1.3 / weight.shape[-1] ** 0.5)
            weight.copy_(weight.bfloat16().float())  # half of the bytes are 0, and compressed well
    return model


def by_optimum(kind: str, folder: Path) -> None:
    """Export by Optimum, which traces the model to TorchScript."""
    from optimum.exporters.onnx import onnx_export_from_model

    model = decoder(kind)
    onnx_export_from_model(model, folder, task="text-generation-with-past", do_validation=False)


def by_dynamo(kind: str, folder: Path, opset: int = 18) -> None:
    """Export by `torch.onnx.export` as docs/llm.md shows."""
    import torch
    from transformers.cache_utils import DynamicCache

    model = decoder(kind)

    class Decoder(torch.nn.Module):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any, position_ids: Any, past: Any) -> Any:
            cache = DynamicCache()
            for layer, (keys, values) in enumerate(past):
                cache.update(keys, values, layer)
            has_positions = {} if kind == "opt" else {"position_ids": position_ids}
            given = {"attention_mask": attention_mask, "past_key_values": cache, **has_positions}
            found = self.model(input_ids, use_cache=True, **given)
            return found.logits, [(layer.keys, layer.values) for layer in found.past_key_values.layers]

    with torch.no_grad():
        layers = model(torch.ones(1, 2, dtype=torch.long), use_cache=True).past_key_values.layers
    heads, size = layers[0].keys.shape[1], layers[0].keys.shape[3]
    batch, new, filled = (torch.export.Dim(name) for name in ("batch", "new", "filled"))
    names = [f"{layer}.{part}" for layer in range(len(layers)) for part in ("key", "value")]
    tokens, positions = torch.randint(0, WORDS, (2, 3)), torch.arange(5, 8).expand(2, -1).contiguous()
    past = [(torch.randn(2, heads, 5, size), torch.randn(2, heads, 5, size)) for _ in layers]
    torch.onnx.export(
        Decoder(),
        (tokens, torch.ones(2, 8, dtype=torch.long), positions, past),
        folder / "model.onnx",
        input_names=["input_ids", "attention_mask", "position_ids", *(f"past_key_values.{name}" for name in names)],
        output_names=["logits", *(f"present.{name}" for name in names)],
        dynamic_shapes=(
            {0: batch, 1: new},
            {0: batch, 1: torch.export.Dim.DYNAMIC},
            {0: batch, 1: new},
            [({0: batch, 2: filled}, {0: batch, 2: filled})] * len(layers),
        ),
        dynamo=True,
        opset_version=opset,
        external_data=False,
        verbose=False,
    )
    model.config.save_pretrained(folder)


def by_generator(kind: str, folder: Path) -> None:
    """Export with weights of 4 bits by ONNX Runtime's generator."""
    from onnxruntime_genai.models import builder

    with TemporaryDirectory() as source:
        decoder(kind).save_pretrained(source)
        save_tokenizer(Path(source))
        how = (None, source, str(folder), "int4", "cpu", source)
        builder.create_model(*how, **builder.parse_extra_options(*how, ["int4_block_size=32"]))


def save_tokenizer(folder: Path) -> None:
    """Write a tokenizer.json with a character for each token, and the names of special ones."""
    vocabulary = {token: k for k, token in enumerate([*_SPECIAL, *map(chr, range(0x4E00, 0x4E00 + WORDS - 3))])}
    parts = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor"))
    model = {"type": "BPE", "unk_token": "<pad>", "vocab": vocabulary, "merges": []}
    kinds = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": k, "content": token, **kinds} for k, token in enumerate(_SPECIAL)]
    found = {"version": "1.0", "added_tokens": added, **parts, "decoder": {"type": "Fuse"}, "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(found))
    named = {"bos_token": "<s>", "eos_token": "</s>", "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))


KEPT: dict[str, Callable[[Path], None]] = {
    "optimum-gemma3": lambda folder: by_optimum("gemma3_text", folder),
    "optimum-qwen3-moe": lambda folder: by_optimum("qwen3_moe", folder),
    "optimum-gpt-oss": lambda folder: by_optimum("gpt_oss", folder),
    "dynamo-gpt-neox": lambda folder: by_dynamo("gpt_neox", folder),
    "dynamo-mistral-23": lambda folder: by_dynamo("mistral", folder, 23),
    "generator-gemma2": lambda folder: by_generator("gemma2", folder),
    "generator-phi3": lambda folder: by_generator("phi3", folder),
}
"""The exports of tests/models/decoders."""


def pack(folder: Path, path: Path) -> None:
    """Write the model in a folder as one file, without the stacks of its source, and its configuration to a zip."""
    model = onnx.load(folder / "model.onnx")
    for node in [*model.graph.node, *(n for f in model.functions for n in f.node)]:
        del node.metadata_props[:]
        node.doc_string = ""
    del model.graph.value_info[:], model.graph.metadata_props[:], model.metadata_props[:]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
        for name in ("config.json", "genai_config.json"):
            if (folder / name).exists():
                out.write(folder / name, name)
        out.writestr("model.onnx", model.SerializeToString(deterministic=True))


def main(names: list[str]) -> None:
    """Write the named exports, all by default, for which the packages are installed."""
    for name in names or KEPT:
        with TemporaryDirectory() as folder:
            try:
                KEPT[name](Path(folder))
            except ImportError as error:
                print(f"{name}: {error}")
                continue
            pack(Path(folder), FOLDER / f"{name}.zip")
            print(f"{name}: {(FOLDER / f'{name}.zip').stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
