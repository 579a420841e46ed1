"""The public function that converts a decoder, and its report."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from onnxtfl import platform_calls
from onnxtfl.arguments import conversion_options, model_kind, of_command
from onnxtfl.errors import OutputError, UsageError
from onnxtfl.option_table import LLM
from onnxtfl.options import Options
from onnxtfl.output import Output, placed
from onnxtfl.tables import WIDTH, Row, as_html, as_text, byte_count, ranked, shape, titled
from onnxtfl.temporary import Folder

if TYPE_CHECKING:
    import onnx

    from onnxtfl.llm.metadata import Metadata
    from onnxtfl.llm.sizes import Sizes
    from onnxtfl.llm.tokenizers import Tokenizer
    from onnxtfl.pipeline_report import Report

PathLike = str | os.PathLike[str]
CONTAINER, MODEL = ".litertlm", ".tflite"
"""The suffixes of results: with tokenizer and metadata, or the model alone."""


@dataclass(frozen=True, repr=False)
class LlmConversion:
    """The result of `convert`: the file, and what is in it.

    ``prefill``: the new tokens of each prefill signature. ``context``: the places of the caches. ``caches``: name,
    dtype and shape of each. ``ops``: nodes by op, by signature. ``metadata``: those that were written, and
    ``tokenizer``: the path of its file, None for a .tflite. ``size``: bytes.
    """

    path: Path
    prefill: tuple[int, ...]
    context: int
    caches: tuple[tuple[str, str, tuple[int, ...]], ...]
    ops: Mapping[str, Mapping[str, int]]
    metadata: Mapping[str, Any] | None
    tokenizer: Path | None
    size: int
    seconds: float
    peak_memory: int | None

    def rows(self, verbose: bool = False) -> list[Row]:
        """The report as rows of a table; ``verbose``: with the ops and caches of all signatures."""
        rows = [Row("signatures", ", ".join(self.ops)), Row("context", f"{self.context} tokens")]
        shown = self.caches if verbose else self.caches[:2]
        rows += titled("caches", [f"{name}  {dtype} {shape(sizes)}" for name, dtype, sizes in shown])
        rows += [Row("", f"and {len(self.caches) - len(shown)} more")] if len(shown) < len(self.caches) else []
        ops = self.ops if verbose else {"decode": self.ops["decode"]}
        rows += titled("ops", [f"{key}  {sum(n.values())}: {ranked(n, verbose)}" for key, n in ops.items()])
        rows += [] if self.tokenizer is None else [Row("tokenizer", os.fspath(self.tokenizer))]
        rows += titled("metadata", [f"{key}  {_shortened(value)}" for key, value in (self.metadata or {}).items()])
        memory = f", peak memory {byte_count(self.peak_memory)}" if self.peak_memory else ""
        return [*rows, Row("size", byte_count(self.size)), Row("time", f"{self.seconds:.2f} s{memory}")]

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
    float16: Literal["float32", "native"] = "float32",
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
    ``tokenizer``: a tokenizer.json or a SentencePiece model, by default that beside the model. ``metadata``: fields of
    LlmMetadata (docs/llm.md), as a dictionary or the path of a TOML file; all others come from genai_config.json,
    config.json, generation_config.json and tokenizer_config.json beside the model, as do the default sizes.

    Raises `InvalidModelError`, `UnsupportedError` for a model that is no such decoder, `UsageError`, `OutputError`, and
    `RuntimeUnavailableError` without litert-lm-builder.
    """
    started, given = time.perf_counter(), of_command(LLM, locals())
    model_kind(model, "model", ("a path", "bytes", "an onnx.ModelProto"))
    from onnxtfl.llm.model_files import ModelFiles
    from onnxtfl.llm.sizes import sizes_of

    target, files = _target(model, path), ModelFiles(model)
    sizes = sizes_of(files, given["prefill"], given["context"])
    parts = _parts(files, given, sizes.context) if _suffix(target) == CONTAINER else None
    if parts is None and (tokenizer is not None or metadata is not None):
        name = "metadata" if tokenizer is None else "tokenizer"
        raise UsageError(f"a .tflite has no `{name}`", hint="write a .litertlm", code="E-USE-006")
    with Output(target, "model") as output:
        reports = _write(model, output, conversion_options(given), sizes, prefill_logits, parts)
        output.keep_apart([model] if isinstance(model, str | os.PathLike) else [])
        size = output.size()
        output.commit()
    return LlmConversion(
        Path(target),
        sizes.prefill,
        sizes.context,
        tuple((name, dtype, _sizes(dims)) for name, dtype, dims in reports["decode"].inputs if name.startswith("kv_")),
        {key: report.ops_after for key, report in reports.items()},
        None if parts is None else parts[1],
        None if parts is None else parts[0].path,
        size,
        time.perf_counter() - started,
        platform_calls.peak_memory(),
    )


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


def _parts(files: Any, given: Mapping[str, Any], context: int) -> tuple[Tokenizer, dict[str, Any], bytes]:
    """The tokenizer and the metadata of a container, the latter also in bytes."""
    from onnxtfl.llm.metadata import message_bytes, metadata_of
    from onnxtfl.llm.tokenizers import tokenizer_of

    metadata = metadata_of(files, given["metadata"], context)
    return tokenizer_of(files, given["tokenizer"]), metadata, message_bytes(metadata)


def _write(
    model: Any, output: Output, options: Options, sizes: Sizes, logits: bool, parts: tuple[Tokenizer, Any, bytes] | None
) -> dict[str, Report]:
    """Write the model, and the container around it if there are `parts`."""
    from onnxtfl.llm.container import write_container
    from onnxtfl.llm.signatures import decoder_to_tflite

    with Folder(output.file.parent.parent) as folder:
        file = output.file if parts is None else folder / "model.tflite"
        try:
            with file.open("w+b") as out:
                reports = decoder_to_tflite(
                    model, out, options, prefill=sizes.prefill, context=sizes.context, prefill_logits=logits
                )
            if parts is not None:
                with output.file.open("w+b") as out:
                    write_container(file, parts[0], parts[2], out)
        except OSError as error:
            raise OutputError(f"cannot write {output.shown}: {error.strerror or error}") from error
    return reports


def _sizes(dims: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(size) for size in dims)


def _shortened(value: Any) -> str:
    text = str(value)
    return text if len(text) <= WIDTH else f"{len(text)} characters"
