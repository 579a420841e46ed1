"""The public function that converts a decoder, and its report."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from onnxtfl import platform_calls
from onnxtfl.arguments import conversion_options, model_kind, of_command, settings
from onnxtfl.errors import CheckFailedError, OutputError, UsageError
from onnxtfl.option_table import LLM
from onnxtfl.output import Output, placed
from onnxtfl.tables import WIDTH, Row, as_html, as_text, byte_count, ranked, shape, titled
from onnxtfl.temporary import Folder

if TYPE_CHECKING:
    import onnx

    from onnxtfl.checking.report import CheckReport
    from onnxtfl.checking.settings import Settings
    from onnxtfl.conversion_check import CheckMode
    from onnxtfl.llm.fixed_decoders import FixedDecoder
    from onnxtfl.llm.kinds import Kind
    from onnxtfl.llm.metadata import Metadata
    from onnxtfl.llm.model_files import ModelFiles
    from onnxtfl.llm.sizes import Sizes
    from onnxtfl.llm.tokenizers import Tokenizer
    from onnxtfl.options import Options
    from onnxtfl.pipeline_report import Report

PathLike = str | os.PathLike[str]
Tolerance = float | str | Mapping[str, float | str]
CONTAINER, MODEL = ".litertlm", ".tflite"
"""The suffixes of results: with tokenizer and metadata, or the model alone."""


@dataclass(frozen=True, repr=False)
class LlmConversion:
    """The result of `convert`: the file, and what is in it.

    ``prefill``: the new tokens of each prefill signature. ``context``: the places of the caches. ``caches``: name,
    dtype and shape of each. ``ops``: nodes by op, by signature. ``metadata``: those that were written, and
    ``tokenizer``: the path of its file, None for a .tflite. ``size``: bytes. ``path``: None if the check failed and
    nothing was kept. ``assumptions``: what has to be true of the inputs.
    """

    path: Path | None
    prefill: tuple[int, ...]
    context: int
    caches: tuple[tuple[str, str, tuple[int, ...]], ...]
    ops: Mapping[str, Mapping[str, int]]
    metadata: Mapping[str, Any] | None
    tokenizer: Path | None
    size: int
    seconds: float
    peak_memory: int | None
    check: CheckReport | None = None
    assumptions: tuple[str, ...] = ()

    def rows(self, verbose: bool = False) -> list[Row]:
        """The report as rows of a table; ``verbose``: with the ops and caches of all signatures."""
        rows = [Row("signatures", ", ".join(self.ops)), Row("context", f"{self.context} tokens")]
        shown = self.caches if verbose else self.caches[:2]
        rows += titled("caches", [f"{name}  {dtype} {shape(sizes)}" for name, dtype, sizes in shown])
        rows += [Row("", f"and {len(self.caches) - len(shown)} more")] if len(shown) < len(self.caches) else []
        ops = self.ops if verbose else {"decode": self.ops["decode"]}
        rows += titled("ops", [f"{key}  {sum(n.values())}: {ranked(n, verbose)}" for key, n in ops.items()])
        rows += titled("assumed", list(self.assumptions))
        rows += [] if self.tokenizer is None else [Row("tokenizer", os.fspath(self.tokenizer))]
        rows += titled("metadata", [f"{key}  {_shortened(value)}" for key, value in (self.metadata or {}).items()])
        memory = f", peak memory {byte_count(self.peak_memory)}" if self.peak_memory else ""
        rows += [Row("size", byte_count(self.size)), Row("time", f"{self.seconds:.2f} s{memory}")]
        return rows + ([] if self.check is None else self.check.rows(verbose))

    def table(self, verbose: bool = False, width: int = WIDTH) -> str:
        """The rows as text, wrapped at spaces to ``width`` columns."""
        return as_text(self.rows(verbose), width)

    def __repr__(self) -> str:
        return f"<LlmConversion {str(self.path)!r}, {byte_count(self.size)}, {', '.join(self.ops)}>"

    def _repr_html_(self) -> str:
        return as_html(self.rows())


def convert(
    model: PathLike | bytes | onnx.ModelProto,
    path: PathLike,
    *,
    prefill: Sequence[int] | None = None,
    context: int | None = None,
    prefill_logits: bool = False,
    tokenizer: PathLike | None = None,
    metadata: PathLike | Metadata | None = None,
    check: CheckMode = "auto",
    rtol: Tolerance = 1e-3,
    atol: Tolerance = 1e-4,
    seed: int = 0,
    keep_failed: bool = False,
    time_limit: float = 300.0,
    quantize: Literal["dynamic", "float16"] | None = None,
    float16: Literal["float32", "native"] = "float32",
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    min_runtime: str = "2.14",
    max_memory: float = 1024.0,
    plugins: Sequence[str] | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> LlmConversion:
    """Convert an ONNX decoder with caches of keys and values to a model of LiteRT-LM.

    ``path``: the file to write: a .litertlm with the model, its tokenizer and metadata, which needs
    ``pip install 'onnxtfl[llm]'``, or a .tflite with the model only; or a folder, for a .litertlm named as the model.
    The model has the signatures ``prefill_N``, one for each number of new tokens in ``prefill``, and ``decode``, which
    share caches of ``context`` places. ``prefill_logits``: with logits in prefill signatures too.
    ``input_shapes``: the sizes of the inputs of an encoder, where they are open.
    ``quantize``: weights of int8, with activations rounded at run time ("dynamic"), or of float16, by litert-quantizer
    (``pip install 'onnxtfl[quantize]'``). The check decodes tokens greedily after several prompts, by the source in
    ONNX Runtime and by the result in LiteRT.

    ``tokenizer``: a tokenizer.json or a SentencePiece model, by default that beside the model. ``metadata``: fields of
    LlmMetadata (docs/llm.md), as a dictionary or the path of a TOML file; all others come from genai_config.json,
    config.json, generation_config.json and tokenizer_config.json beside the model, as do the default sizes.

    Raises `InvalidModelError`, `UnsupportedError` for a model that is no such decoder, `UsageError`, `OutputError`,
    `CheckFailedError`, and `RuntimeUnavailableError` without litert-lm-builder.
    """
    started, given = time.perf_counter(), of_command(LLM, locals())
    model_kind(model, "model", ("a path", "bytes", "an onnx.ModelProto"))
    from onnxtfl.llm.kinds import kind_of
    from onnxtfl.llm.model_files import ModelFiles

    target, files, kind = _target(model, path), ModelFiles(model), kind_of(model)
    sizes = _sizes_of(kind, files, given, target)
    parts = _parts(kind, files, given, sizes.context, target)
    with Output(target, "model") as output:
        reports, compared = _write(model, kind, output, given, sizes, parts)
        output.keep_apart([model] if isinstance(model, str | os.PathLike) else [])
        size, problem = output.size(), _problem(compared, given["check"])
        if not problem or keep_failed:
            output.commit()
    kept = None if problem and not keep_failed else Path(target)
    made = _conversion(kept, sizes, parts, reports, size, time.perf_counter() - started, compared)
    if problem:
        raise CheckFailedError(problem, conversion=made, hint=f"the result is kept in {made.path}" if made.path else "")
    return made


def _conversion(
    path: Path | None,
    sizes: Sizes,
    parts: _Parts | None,
    reports: Mapping[str, Report],
    size: int,
    seconds: float,
    compared: CheckReport | None,
) -> LlmConversion:
    """The result of a conversion, of `size` bytes, from the reports of its signatures and of its check."""
    assumed = (one.text for report in reports.values() for one in report.assumptions if not one.is_minor)
    return LlmConversion(
        path,
        sizes.prefill,
        sizes.context,
        tuple((name, dtype, _sizes(dims)) for name, dtype, dims in reports["decode"].inputs if "kv_cache" in name),
        {key: report.ops_after for key, report in reports.items()},
        None if parts is None else parts.metadata,
        None if parts is None else parts.tokenizer.path,
        size,
        seconds,
        platform_calls.peak_memory(),
        compared,
        tuple(dict.fromkeys(assumed)),
    )


def _sizes_of(kind: Kind, files: ModelFiles, given: Mapping[str, Any], target: PathLike) -> Sizes:
    """The sizes of the signatures. Raises UsageError for what a decoder of this kind cannot have."""
    from onnxtfl.llm.decoders import BOTH, Decoder
    from onnxtfl.llm.encoder_decoders import EncoderDecoder
    from onnxtfl.llm.fixed_decoders import FixedDecoder
    from onnxtfl.llm.sizes import sizes_of

    if given["input_shapes"] and not isinstance(kind, EncoderDecoder):
        message = "`input_shapes`: the sizes of a decoder are `context` and `prefill`"
        raise UsageError(message, hint="leave it out", code="E-USE-006")
    if isinstance(kind, FixedDecoder):
        return _of_files(kind, given)
    if _suffix(target) == CONTAINER and isinstance(kind, Decoder) and any(cache.kind == BOTH for cache in kind.caches):
        message = "LiteRT-LM has a cache of keys and one of values for each layer: this decoder has both in one"
        raise UsageError(message, hint=f"name the result *{MODEL}", code="E-USE-006")
    sizes = sizes_of(files, given["prefill"], given["context"])
    return _of_first_tokens(sizes, given["prefill"], target) if isinstance(kind, EncoderDecoder) else sizes


def _problem(compared: CheckReport | None, mode: CheckMode) -> str:
    """Why the check failed; "" if it did not."""
    if compared is None or (compared.status != "failed" and (mode != "require" or compared.status == "passed")):
        return ""
    return f"the {'check of the converted model' if compared.status == 'failed' else 'converted model was'} {compared}"


def _of_files(decoder: FixedDecoder, given: Mapping[str, Any]) -> Sizes:
    """The sizes of a decoder whose files have them. Raises UsageError if others are asked for."""
    from onnxtfl.llm.sizes import Sizes

    for name in ("prefill", "context"):
        if given[name] is not None:
            raise UsageError(f"`{name}`: the sizes of this decoder are fixed", hint="leave it out", code="E-USE-006")
    return Sizes(decoder.prefill, decoder.context)


def _of_first_tokens(sizes: Sizes, prefill: Sequence[int] | None, target: PathLike) -> Sizes:
    """The sizes of an encoder-decoder: one of the first tokens. Raises UsageError for several, and for a container."""
    if _suffix(target) == CONTAINER:
        message = "LiteRT-LM has no encoder-decoders"
        raise UsageError(message, hint=f"name the result *{MODEL}", code="E-USE-006")
    if prefill is not None and len(set(prefill)) != 1:
        raise UsageError("`prefill`: an encoder-decoder has one number of first tokens", hint="give one number")
    return replace(sizes, prefill=tuple(prefill or (1,)))


def _target(model: Any, path: PathLike) -> PathLike:
    """The path of the result. Raises UsageError for one of another suffix."""
    target = placed(path, model, CONTAINER)
    if target is None or _suffix(target) not in (CONTAINER, MODEL):
        raise UsageError(
            f"{path} is not a name for a language model", hint=f"name it *{CONTAINER} or *{MODEL}", code="E-USE-006"
        )
    return target


def _suffix(path: PathLike) -> str:
    return os.path.splitext(path)[1].lower()


@dataclass(frozen=True)
class _Parts:
    """What a container has besides the model: `message`: the metadata in bytes; `embedder`: an .onnx, if needed."""

    tokenizer: Tokenizer
    metadata: dict[str, Any]
    message: bytes
    embedder: Path | None


def _parts(kind: Kind, files: ModelFiles, given: Mapping[str, Any], context: int, target: PathLike) -> _Parts | None:
    """The parts of a container; None for a .tflite. Raises UsageError for options that only containers have."""
    from onnxtfl.llm.decoders import Decoder
    from onnxtfl.llm.embedders import embedder_of
    from onnxtfl.llm.metadata import message_bytes, metadata_of
    from onnxtfl.llm.tokenizers import tokenizer_of

    if _suffix(target) != CONTAINER:
        if options := [name for name in ("tokenizer", "metadata") if given[name] is not None]:
            raise UsageError(f"a .tflite has no `{options[0]}`", hint="write a .litertlm", code="E-USE-006")
        return None
    metadata = metadata_of(files, given["metadata"], context)
    embedder = embedder_of(files) if isinstance(kind, Decoder) and kind.has_embeddings else None
    return _Parts(tokenizer_of(files, given["tokenizer"]), metadata, message_bytes(metadata), embedder)


def _write(
    model: Any, kind: Kind, output: Output, given: Mapping[str, Any], sizes: Sizes, parts: _Parts | None
) -> tuple[dict[str, Report], CheckReport | None]:
    """Write the model, check it, and write the container around it if there are `parts`."""
    from onnxtfl.llm.container import write_container_around
    from onnxtfl.pipeline_report import joined
    from onnxtfl.quantizing import Quantizing

    quantizing = None if given["quantize"] is None else Quantizing(given["quantize"], None, True)
    if quantizing is not None:
        quantizing.validate()
    options = conversion_options({name: value for name, value in given.items() if name != "metadata"})
    write = partial(_write_model, model, kind, options=options, sizes=sizes, prefill_logits=given["prefill_logits"])
    is_read = quantizing is not None or given["check"] is not False  # by itself, before the container is made
    try:
        if parts is not None and parts.embedder is None and not is_read:
            with output.file.open("w+b") as out:
                return write_container_around(write, parts.tokenizer, parts.message, out), None
        with Folder(output.file.parent.parent) as folder:
            file = output.file if parts is None else folder / "model.tflite"
            with file.open("w+b") as out:
                reports = write(out)
            if quantizing is not None:
                quantizing.run(file, joined(reports), given["seed"])
            compared = None if given["check"] is False else _compared(getattr(kind, "file", model), file, given)
            if parts is not None:
                compared = _packed(file, output.file, parts, options, compared, given)
    except OSError as error:
        raise OutputError(f"cannot write {output.shown}: {error.strerror or error}") from error
    return reports, compared


def _write_model(
    model: Any, kind: Kind, out: BinaryIO, options: Options, sizes: Sizes, prefill_logits: bool
) -> dict[str, Report]:
    """Write the signatures of a model, from the position of the file on."""
    from onnxtfl.llm.encoder_decoders import EncoderDecoder, encoder_decoder_to_tflite
    from onnxtfl.llm.fixed_decoders import FixedDecoder, fixed_decoder_to_tflite
    from onnxtfl.llm.signatures import decoder_to_tflite

    if isinstance(kind, FixedDecoder):
        return fixed_decoder_to_tflite(kind, out, options)
    if isinstance(kind, EncoderDecoder):
        return encoder_decoder_to_tflite(kind, out, options, new=sizes.prefill[0], context=sizes.context)
    how: dict[str, Any] = {"prefill": sizes.prefill, "prefill_logits": prefill_logits}
    return decoder_to_tflite(model, kind, out, options, context=sizes.context, **how)


def _packed(
    model: Path, target: Path, parts: _Parts, options: Options, compared: CheckReport | None, given: Mapping[str, Any]
) -> CheckReport | None:
    """Write the container around a model; the report of its check, also in the engine."""
    from onnxtfl.llm.container import write_container
    from onnxtfl.llm.embedders import embedder_to_tflite
    from onnxtfl.llm.engine_check import with_engine

    embedder = None if parts.embedder is None else model.with_name("embedder.tflite")
    if embedder is not None and parts.embedder is not None:
        with embedder.open("w+b") as out:
            embedder_to_tflite(parts.embedder, out, options)
    with target.open("w+b") as out:
        write_container(model, parts.tokenizer, parts.message, out, embedder)
    return compared and with_engine(compared, target, model, _settings(given), embedder)


def _compared(model: Any, file: Path, given: Mapping[str, Any]) -> CheckReport:
    """The check by generation of the result in a file."""
    from onnxtfl.conversion_check import as_file
    from onnxtfl.llm.generation import check_generation

    if given["on_progress"] is not None:
        given["on_progress"]("check")
    with ExitStack() as stack:
        source = as_file(model, "source", stack)
        return check_generation(source, file, _settings(given))


def _settings(given: Mapping[str, Any]) -> Settings:
    from onnxtfl.checking.settings import PATIENCE, Settings

    return Settings(**settings(LLM, given), patience=None if given["check"] == "require" else PATIENCE)


def _sizes(dims: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(size) for size in dims)


def _shortened(value: Any) -> str:
    text = str(value)
    return text if len(text) <= WIDTH else f"{len(text)} characters"
