"""Files of LiteRT-LM: decoders written as .litertlm, run in its engine, and read again."""

from __future__ import annotations

import importlib.util
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import onnx
import pytest
from click.testing import CliRunner

import onnxtfl
from onnxtfl.cli.commands import onnxtfl as command
from onnxtfl.errors import InvalidModelError, RuntimeUnavailableError, UsageError
from onnxtfl.formats import files
from onnxtfl.formats.litertlm import read_container
from onnxtfl.formats.source import open_source
from onnxtfl.formats.tflite import schema
from tests.unit import test_tflite_data_files as external_weights
from tests.unit.decoder_forms import TinyDecoder, saved
from tests.unit.tiny_decoders import CHARACTERS, TOKENS, greedy, sentence_piece, write_decoder

builder = pytest.importorskip("litert_lm_builder")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a decoder, and model.litertlm made of it."""
    made = tmp_path_factory.mktemp("decoder")
    onnxtfl.llm.convert(write_decoder(made), made / "model.litertlm", prefill=[16, 4], context=64)
    return made


def test_the_header_is_that_of_the_generated_code() -> None:
    from litert_lm_builder import litertlm_header_schema_py_generated as generated

    for name, names in (
        ("VData", ("NONE", *schema.unions()["VData"])),
        ("AnySectionDataType", schema.enums()["AnySectionDataType"][1]),
    ):
        numbers = {key: n for key, n in vars(getattr(generated, name)).items() if not key.startswith("_")}
        assert numbers == {key: n for n, key in enumerate(names)}


def test_the_sections(folder: Path) -> None:
    found = read_container(open_source(folder / "model.litertlm"))
    assert [(s.kind, s.model_type) for s in found.sections] == [
        *(("LlmMetadataProto", ""), ("HF_Tokenizer_Zlib", "")),
        ("TFLiteModel", "prefill_decode"),
    ]
    shown = onnxtfl.inspect(folder / "model.litertlm").summary.sections
    assert shown[0].endswith("start 1, stop 2, length 64, generic_model")
    assert "tokenizer.json, BPE, 64 tokens" in shown[1]
    assert "model_type tf_lite_prefill_decode" in shown[2]


def test_the_file_without_a_check_is_the_same(folder: Path, tmp_path: Path) -> None:
    """Its model is written to its place in the container, with a check copied to it."""
    onnxtfl.llm.convert(folder / "model.onnx", tmp_path / "m.litertlm", prefill=[16, 4], context=64, check=False)
    pairs = (
        read_container(open_source(path)).sections for path in (folder / "model.litertlm", tmp_path / "m.litertlm")
    )
    for copied, written in zip(*pairs, strict=True):
        assert (copied.kind, copied.properties) == (written.kind, written.properties)
        assert copied.content.read(0, copied.content.size) == written.content.read(0, written.content.size)


def test_the_builder_reads_it(folder: Path, tmp_path: Path) -> None:
    builder.unpack(str(folder / "model.litertlm"), str(tmp_path))
    assert any(path.suffix == ".tflite" for path in tmp_path.iterdir())


@pytest.mark.parametrize("length", [1, 4, 17, 30, 58])
def test_the_engine_decodes_as_onnx_runtime(folder: Path, length: int) -> None:
    """Also where a prefill is padded, and at the end of the caches."""
    litert_lm = pytest.importorskip("litert_lm")
    litert_lm.set_min_log_severity(litert_lm.LogSeverity.ERROR)
    text = (CHARACTERS * 2)[5 : 5 + length]
    greedily = litert_lm.SamplerConfig(top_k=1, temperature=1.0)
    with (
        litert_lm.Engine(str(folder / "model.litertlm"), cache_dir=":nocache") as engine,
        engine.create_session(apply_prompt_template=False, sampler_config=greedily, max_output_tokens=8) as session,
    ):
        session.run_prefill([text])
        found = engine.tokenize(session.run_decode().texts[0])
    expected = greedy(folder / "model.onnx", [1, *map(TOKENS.index, text)], 8)
    assert found == expected[: min(8, 64 - 1 - length)]


@pytest.mark.parametrize("signature", ["decode", "prefill_4"])
def test_to_onnx(folder: Path, tmp_path: Path, signature: str) -> None:
    done = onnxtfl.tflite_to_onnx(
        folder / "model.litertlm", tmp_path / "back.onnx", signature=signature, check="require"
    )
    assert [t.name for t in done.report.inputs] == ["tokens", "input_pos", "mask", "kv_cache_k_0", "kv_cache_v_0"]


def test_to_onnx_without_a_signature_and_from_memory(folder: Path) -> None:
    content = (folder / "model.litertlm").read_bytes()
    done = onnxtfl.tflite_to_onnx(content, check="require")
    assert done.report.other_signatures
    assert onnxtfl.signatures(content) == ("prefill_4", "prefill_16", "decode")
    assert onnxtfl.check(content, done.data).ok


def test_models_of_several_sections(folder: Path, tmp_path: Path) -> None:
    onnxtfl.llm.convert(folder / "model.onnx", tmp_path / "model.tflite", prefill=[4], context=8)
    small = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> m (float[2] x) => (float[2] y) {y = Exp(x)}'
    )
    onnxtfl.onnx_to_tflite(small, tmp_path / "small.tflite")
    made = builder.LitertLmFileBuilder()
    made.add_tflite_model(str(tmp_path / "small.tflite"), builder.TfLiteModelType.VISION_ENCODER)
    made.add_tflite_model(str(tmp_path / "small.tflite"), builder.TfLiteModelType.VISION_ADAPTER)
    made.add_tflite_model(str(tmp_path / "model.tflite"), builder.TfLiteModelType.PREFILL_DECODE)
    with (tmp_path / "all.litertlm").open("wb") as out:
        made.build(out)
    keys = ("prefill_4", "decode", "serving_default", "vision_adapter:serving_default")
    assert onnxtfl.signatures(tmp_path / "all.litertlm") == keys
    done = onnxtfl.tflite_to_onnx(tmp_path / "all.litertlm", signature=keys[-1], check="require")
    assert done.report.ops_after == {"Exp": 1}


def test_weights_in_a_section_of_their_own(tmp_path: Path) -> None:
    content = external_weights.model("tflite_weights")
    (tmp_path / "w.bin").write_bytes(bytes(64) + external_weights.WEIGHTS.tobytes())
    (tmp_path / "m.tflite").write_bytes(content)
    made = builder.LitertLmFileBuilder()
    made.add_tflite_weights(str(tmp_path / "w.bin"), builder.TfLiteModelType.EMBEDDER)
    made.add_tflite_model(str(tmp_path / "m.tflite"), builder.TfLiteModelType.EMBEDDER)
    with (tmp_path / "all.litertlm").open("wb") as out:
        made.build(out)
    done = onnxtfl.tflite_to_onnx(tmp_path / "all.litertlm", check="require")
    assert done.report.ops_after == {"Mul": 1}


def _edited(content: bytes, position: int, *values: int) -> bytes:
    return content[:position] + struct.pack(f"<{len(values)}I", *values) + content[position + 4 * len(values) :]


def test_damaged_files(folder: Path) -> None:
    whole = (folder / "model.litertlm").read_bytes()
    damaged = {
        "expected at byte": whole[:40],
        "version 2.": _edited(whole, 8, 2),
        "cut off|truncated|malformed": _edited(whole, 24, 1 << 30, 0),
        "truncated or corrupt": whole[: len(whole) - 1000],
    }
    for message, content in damaged.items():
        with pytest.raises(InvalidModelError, match=message):
            files.read(content)
    for position in range(0, 400, 4):  # whatever it is, it is an error of ours
        try:
            onnxtfl.inspect(_edited(whole, position, 0xFFFFFF00))
        except InvalidModelError:
            continue


def test_a_container_without_a_model(folder: Path, tmp_path: Path) -> None:
    made = builder.LitertLmFileBuilder()
    made.add_hf_tokenizer(str(folder / "tokenizer.json"))
    with (tmp_path / "x.litertlm").open("wb") as out:
        made.build(out)
    with pytest.raises(InvalidModelError, match=r"x\.litertlm: no section has a TFLite model; its sections: HF_Token"):
        onnxtfl.tflite_to_onnx(tmp_path / "x.litertlm")
    with pytest.raises(InvalidModelError, match="a LiteRT-LM model, not an ONNX model"):
        onnxtfl.onnx_to_tflite(tmp_path / "x.litertlm")


def test_without_the_builder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "litert_lm_builder", None)
    with pytest.raises(RuntimeUnavailableError, match="onnxtfl\\[llm\\]"):
        onnxtfl.llm.convert(folder / "model.onnx", tmp_path / "x.litertlm")
    found = onnxtfl.llm.convert(folder / "model.onnx", tmp_path / "x.tflite", prefill=[4], context=8)
    assert found.metadata is None and found.caches[0] == ("kv_cache_k_0", "float32", (1, 2, 8, 4))
    assert [path.name for path in tmp_path.iterdir()] == ["x.tflite"]
    onnxtfl.tflite_to_onnx(folder / "model.litertlm", signature="decode", check=False)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"context": 97}, "the model has 96 positions, by its genai_config.json or config.json; use up to 96"),
        ({"prefill": [4, 40], "context": 32}, "40 tokens do not fit into 32"),
        ({"prefill": []}, "prefill cannot be 'list'; use a list of integers"),
        ({"tokenizer": "none.json"}, "none.json: cannot be read"),
        ({"metadata": {"stop_tokens": []}}, "there is no stop token: looked for eos_token_id"),
        ({"metadata": {"max_num_tokens": 100}}, "max_num_tokens of 100 in the metadata: the caches have 96 places"),
        ({"metadata": {"stop_token": 2}}, "no field 'stop_token'; did you mean 'stop_tokens'"),
        ({"metadata": {"sampler_params": {"top": 2}}}, "top"),
    ],
    ids=str,
)
def test_arguments_that_do_not_fit(folder: Path, tmp_path: Path, how: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as error:
        onnxtfl.llm.convert(folder / "model.onnx", tmp_path / "x.litertlm", **how)
    assert message in str(error.value)
    assert not [*tmp_path.iterdir()]


def test_other_names(folder: Path, tmp_path: Path) -> None:
    for name in ("x.onnx", "x"):
        with pytest.raises(UsageError, match="not a name for a language model"):
            onnxtfl.llm.convert(folder / "model.onnx", tmp_path / name)
    with pytest.raises(UsageError, match=r"a \.tflite has no tokenizer"):
        onnxtfl.llm.convert(folder / "model.onnx", tmp_path / "x.tflite", tokenizer=folder / "tokenizer.json")


def test_a_model_that_is_no_decoder_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    small = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> m (float[2] x) => (float[2] y) {y = Exp(x)}'
    )
    with pytest.raises(onnxtfl.UnsupportedError, match="not a decoder"):
        onnxtfl.llm.convert(small, tmp_path / "new" / "x.tflite")
    assert not [*(tmp_path / "new").iterdir()]


def test_the_command(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('stop_tokens = [2, "a"]\n')
    sizes = ["--prefill", "4,8", "--context", "16", "--metadata", str(tmp_path / "own.toml")]
    model, target = str(folder / "model.onnx"), str(tmp_path / "x.litertlm")
    done = CliRunner().invoke(command, ["onnx2tfl", model, "--llm", "-o", target, *sizes])
    assert done.exit_code == 0, done.output
    assert "signatures  prefill_4, prefill_8, decode" in done.output
    shown = CliRunner().invoke(command, ["inspect", target, "--summary"])
    assert "stop 2, 'a', length 16" in " ".join(shown.output.split())
    back = CliRunner().invoke(command, ["tfl2onnx", target, "--signature", "decode", "--no-check", "-q"])
    assert back.exit_code == 0 and (tmp_path / "x.onnx").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prefill", "4"], "--prefill is for --llm"),
        (["--llm", "--opset", "17"], "No such option"),
        (["--llm", "--dim", "n=1"], "--dim has no effect with --llm"),
        (["--llm", "--prefill", "4,x"], "'4,x' is not a list of numbers"),
        (["--llm", "-o", "-"], "--llm writes a file"),
        (["--metadata", "a.toml"], "files of metadata are for --llm"),
    ],
    ids=str,
)
def test_options_that_do_not_go_together(folder: Path, arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(command, ["onnx2tfl", str(folder / "model.onnx"), *arguments])
    assert done.exit_code != 0
    assert message in done.output + str(done.exception)


def test_a_tokenizer_of_sentence_piece(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "t.model").write_bytes(sentence_piece())
    how = {"prefill": [4], "context": 64, "check": False}
    onnxtfl.llm.convert(folder / "model.onnx", tmp_path / "x.litertlm", tokenizer=tmp_path / "t.model", **how)
    shown = onnxtfl.inspect(tmp_path / "x.litertlm").summary.sections
    assert shown[1].endswith("SentencePiece, 64 tokens")
    litert_lm = pytest.importorskip("litert_lm")
    with litert_lm.Engine(str(tmp_path / "x.litertlm"), cache_dir=":nocache") as engine:
        assert engine.tokenize("a Z3.") == list(map(TOKENS.index, "a Z3."))


def test_a_tokenizer_of_no_known_kind(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("words")
    with pytest.raises(UsageError, match=r"neither Hugging Face's tokenizer\.json nor a SentencePiece model"):
        onnxtfl.llm.convert(folder / "model.onnx", tmp_path / "y.litertlm", tokenizer=tmp_path / "t.txt")


def test_files_in_the_folder_above(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "model.onnx").write_bytes((folder / "model.onnx").read_bytes())
    with pytest.raises(UsageError, match="looked for"):
        onnxtfl.llm.convert(tmp_path / "onnx" / "model.onnx", tmp_path / "x.litertlm")
    (tmp_path / "tokenizer.json").write_text((folder / "tokenizer.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": [2, 3], "n_positions": 40}))
    found = onnxtfl.llm.convert(tmp_path / "onnx" / "model.onnx", tmp_path)
    assert found.path == tmp_path / "model.litertlm"
    assert (found.prefill, found.context) == ((32,), 40)
    assert found.metadata == {"stop_tokens": [2, 3], "max_num_tokens": 40, "llm_model_type": "generic_model"}


def test_the_check(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how = {"prefill": [4], "context": 16}
    found = onnxtfl.llm.convert(folder / "model.onnx", tmp_path / "x.tflite", check="require", **how)
    assert found.check is not None and found.check.ok and "check" in found.table()
    with pytest.raises(onnxtfl.CheckFailedError) as error:
        onnxtfl.llm.convert(folder / "model.onnx", tmp_path / "y.litertlm", rtol=0, atol="0abs", **how)
    assert error.value.conversion.path is None and not (tmp_path / "y.litertlm").exists()
    with pytest.raises(onnxtfl.CheckFailedError, match="the result is kept in"):
        onnxtfl.llm.convert(
            folder / "model.onnx", tmp_path / "y.litertlm", rtol=0, atol="0abs", keep_failed=True, **how
        )
    assert (tmp_path / "y.litertlm").exists()


def test_the_check_in_the_engine(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("litert_lm")
    model, how = folder / "model.onnx", {"prefill": [4], "context": 64}
    found = onnxtfl.llm.convert(model, tmp_path / "x.litertlm", **how)
    assert found.check is not None and found.check.ok
    assert any(note.startswith("LiteRT-LM 0.18") for note in found.check.notes)

    from onnxtfl.runtimes import Worker

    def other(*arguments: object) -> dict[str, object]:
        answer = original(*arguments)
        return answer | {"texts": [text + "!" for text in answer["texts"]]} if "prompts" in answer else answer

    original = Worker.texts
    monkeypatch.setattr(Worker, "texts", other)
    monkeypatch.setattr("onnxtfl.llm.engine_check._NEAR", 0)
    with pytest.raises(onnxtfl.CheckFailedError, match="LiteRT-LM goes on with"):
        onnxtfl.llm.convert(model, tmp_path / "y.litertlm", **how)


def test_there_and_back(folder: Path, tmp_path: Path) -> None:
    onnxtfl.signatures_to_onnx(folder / "model.litertlm", tmp_path, check=False)
    decode, target = tmp_path / "decode.onnx", tmp_path / "back.litertlm"
    how = {"tokenizer": folder / "tokenizer.json", "metadata": {"start_token": 1, "stop_tokens": [2]}}
    with pytest.raises(UsageError, match="prefill: the sizes of this decoder are fixed"):
        onnxtfl.llm.convert(decode, target, prefill=[8], **how)
    found = onnxtfl.llm.convert(decode, target, **how)
    assert (found.prefill, found.context) == ((4, 16), 64)
    assert found.check is not None and found.check.ok, found.check
    assert all("the same 32 tokens" in out.note for out in found.check.outputs)
    assert found.size < 1.5 * (folder / "model.litertlm").stat().st_size
    graph = files.read(target).signatures[-1].graph
    assert graph.output_names == ["logits", "kv_cache_k_0", "kv_cache_v_0"]
    litert_lm = pytest.importorskip("litert_lm")
    greedily = litert_lm.SamplerConfig(top_k=1, temperature=1.0)
    with (
        litert_lm.Engine(str(target), cache_dir=":nocache") as engine,
        engine.create_session(apply_prompt_template=False, sampler_config=greedily, max_output_tokens=8) as session,
    ):
        session.run_prefill(["Some text."])
        tokens = engine.tokenize(session.run_decode().texts[0])
    assert tokens == greedy(folder / "model.onnx", [1, *map(TOKENS.index, "Some text.")], 8)
    decode.rename(tmp_path / "other.onnx")
    with pytest.raises(onnxtfl.UnsupportedError, match=r"looked beside it for decode\.onnx, found prefill_4"):
        onnxtfl.llm.convert(tmp_path / "prefill_4.onnx", target, **how)


def test_a_decoder_with_embeddings(folder: Path, tmp_path: Path) -> None:
    """LiteRT-LM looks them up in a model of its own, which exporters write beside the decoder."""
    form = TinyDecoder(embedded=True)
    source = saved(form.model(), tmp_path)
    shutil.copy(folder / "tokenizer.json", tmp_path)
    how: dict[str, Any] = {"prefill": [4], "context": 64, "metadata": {"start_token": 1, "stop_tokens": [2]}}
    with pytest.raises(UsageError, match=r"looked for embed_tokens\.onnx"):
        onnxtfl.llm.convert(source, tmp_path / "m.litertlm", **how)
    onnx.save(TinyDecoder(embedded=True).embedder(), tmp_path / "embed_tokens.onnx")
    done = onnxtfl.llm.convert(source, tmp_path / "m.litertlm", **how, check="require")
    assert done.check is not None and all("the same 32 tokens" in out.note for out in done.check.outputs)
    found = read_container(open_source(tmp_path / "m.litertlm"))
    assert [s.model_type for s in found.sections if s.model_type] == ["prefill_decode", "embedder"]
    if importlib.util.find_spec("litert_lm") is not None:
        assert any("goes on as LiteRT" in note for note in done.check.notes), done.check.notes
