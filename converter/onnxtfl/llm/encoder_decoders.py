"""Encoder-decoders (T5, Whisper) as signatures of one .tflite: encode, prefill (the first tokens), decode."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from onnxtfl.errors import UnsupportedError, UsageError
from onnxtfl.formats import files
from onnxtfl.ir.dims import SymDim
from onnxtfl.ir.graph import Graph, Value
from onnxtfl.ir.types import shape_of
from onnxtfl.llm.decoders import Cache, Decoder, cross_name, decoder_of
from onnxtfl.llm.model_files import CONFIG, ModelFiles
from onnxtfl.options import Options
from onnxtfl.passes.states.first_caches import FirstCaches
from onnxtfl.passes.states.fixed_caches import FixedCaches
from onnxtfl.pipeline import inspect, onnx_to_tflite_entries
from onnxtfl.pipeline_report import Report

ENCODE, PREFILL, DECODE = "encode", "prefill", "decode"
_Sizes = dict[str, tuple[int, ...]]
Shapes = Mapping[str, Sequence[int | str]]
_FILLED = "filled"
_BRANCH = "use_cache_branch"
"""The input of a merged decoder that says whether there are caches."""
_STATES = "encoder_hidden_states"
_OF_ENCODER = "encoder_"
"""What decoders write before the name of an input that their encoder has too."""
_ENCODER = "encoder.onnx"
"""The encoder that ONNX Runtime's generator writes beside a decoder."""
_NAME = re.compile(r"decoder(_with_past)?_model(_merged)?(?P<rest>.*)\.onnx")


@dataclass(frozen=True)
class EncoderDecoder:
    """The files of an encoder-decoder: encoder, decoder of the first tokens, decoder of later ones (the same one where
    both are merged).

    ``has_crosses``: the encoder computes the keys and values of its states, and first tokens are later ones after no
    others.
    """

    encoder: Path
    first: Path
    later: Path
    has_crosses: bool = False

    @property
    def file(self) -> Path:
        """The file that reports and errors name."""
        return self.first


def encoder_decoder_at(model: object, graph: Graph) -> EncoderDecoder | None:
    """The files of which a decoder (decoder_model.onnx, decoder_with_past_model.onnx or decoder_model_merged.onnx, as
    Optimum names them) with this graph is one; None for another model. Raises UnsupportedError where one is missing.
    """
    path = Path(os.fspath(model)) if isinstance(model, str | os.PathLike) else None
    names = [str(v.name) for v in graph.inputs]
    if path is not None and any(map(cross_name, names)) and (encoder := path.parent / _ENCODER).is_file():
        return EncoderDecoder(encoder, path, path, True)
    if path is None or not any(name.startswith(_OF_ENCODER) for name in names):
        return None
    match = _NAME.fullmatch(path.name)
    rest = match["rest"] if match is not None else ""
    folder = path.parent
    merged = folder / f"decoder_model_merged{rest}.onnx"
    pair = [folder / f"decoder_model{rest}.onnx", folder / f"decoder_with_past_model{rest}.onnx"]
    is_merged = (match is not None and match[2] is not None) or not all(map(Path.is_file, pair))
    first, later = (merged, merged) if is_merged else pair
    found = EncoderDecoder(folder / f"encoder_model{rest}.onnx", first, later)
    for part in (found.encoder, found.first):
        if match is None or not part.is_file():
            raise UnsupportedError(
                f"a decoder that reads an encoder's states: looked beside it for {part.name}",
                hint="convert one of the files that `optimum-cli export onnx` writes into one folder",
                code="E-OP-010",
            )
    return found


def encoder_decoder_to_tflite(
    model: EncoderDecoder, out: BinaryIO, options: Options, *, new: int, context: int
) -> dict[str, Report]:
    """Write the signatures of an encoder-decoder to a seekable binary file.

    ``new``: the number of the first tokens; ``context``: the places of the decoder's caches, and the tokens of an
    encoder of open length; ``options.input_shapes``: the sizes of its inputs, if others.
    """
    given, options = options.input_shapes or {}, replace(options, record=False, input_shapes=None)
    encode, shapes = _encoder_options(model.encoder, options, given, context)
    if model.has_crosses:
        return onnx_to_tflite_entries(out, _with_crosses(model, encode, options, (new, context)))
    (states,) = inspect(model.encoder, "lifted", encode).outputs
    later = decoder_of(files.read(model.later).main, has_encoder=True)
    read = _Read(states.shape[1], {f"{_OF_ENCODER}{name}": shape for name, shape in shapes.items()})
    entries = {
        ENCODE: (model.encoder, encode),
        PREFILL: (model.first, _first(files.read(model.first).main, later, options, (new, context), read)),
        DECODE: (model.later, _later(files.read(model.later).main, later, options, (1, context), read)),
    }
    return onnx_to_tflite_entries(out, entries)


def _with_crosses(
    model: EncoderDecoder, encode: Options, options: Options, sizes: tuple[int, int]
) -> dict[str, tuple[Path, Options]]:
    """The files and options of the signatures where the encoder computes the cross caches."""
    made, graph, (new, context) = inspect(model.encoder, "lifted", encode), files.read(model.first).main, sizes
    names = map(cross_name, encode.outputs or ())
    shapes = {name: tuple(value.shape) for name, value in zip(names, made.outputs, strict=True)}
    crossed = {name: shapes[cross] for v in graph.inputs if (cross := cross_name(name := str(v.name))) in shapes}
    read, decoder = _Read(context, crossed), decoder_of(graph, has_encoder=True)
    parts = {key: _later(graph, decoder, options, (n, context), read) for key, n in ((PREFILL, new), (DECODE, 1))}
    return {ENCODE: (model.encoder, encode), **{key: (model.first, part) for key, part in parts.items()}}


def _encoder_options(file: Path, options: Options, given: Shapes, length: int) -> tuple[Options, _Sizes]:
    """The options of the encoder, with the sizes of its inputs."""
    graph = files.read(file).main
    outputs = graph.names_of_outputs
    renamed = {name: cross for name in outputs if (cross := cross_name(name)) is not None}
    renamed = renamed or {outputs[0]: _STATES}
    found = dict(_sizes(graph.inputs, length))
    images = {str(v.name): _image(ModelFiles(file)) for v in graph.inputs if _is_open_image(v)}
    shapes = found | {name: shape for name, shape in images.items() if shape}
    for name, shape in given.items():
        sizes = tuple(n for n in shape if isinstance(n, int) and n > 0)
        if name not in found or len(sizes) < len(shape) or sizes[0] != 1:
            message = f"`input_shapes` of {name!r}: the inputs of the encoder are {', '.join(found)}, with a batch of 1"
            raise UsageError(message, hint="name one of these, like NAME:1,SIZE")
        shapes[name] = sizes
    return replace(options, input_shapes=shapes, outputs=list(renamed), rename=renamed), shapes


def _is_open_image(value: Value) -> bool:
    """Whether an input is an image [batch, channels, height, width] of any size."""
    shape = shape_of(value.type)
    return shape is not None and len(shape) == 4 and all(isinstance(dim, SymDim) for dim in shape)


def _image(files_: ModelFiles) -> tuple[int, ...]:
    """The sizes of an image that the configuration of the encoder names; () where it names none."""
    encoder = files_.table(CONFIG).get("encoder")
    encoder = encoder if isinstance(encoder, dict) else {}
    channels, size = encoder.get("num_channels", 3), encoder.get("image_size")
    sizes = [size, size] if isinstance(size, int) else size
    numbers = [channels, *sizes] if isinstance(sizes, list) and len(sizes) == 2 else []
    return (1, *numbers) if numbers and all(isinstance(n, int) for n in numbers) else ()


@dataclass(frozen=True)
class _Read:
    """What a decoder reads of its encoder: the number of states, and the sizes of the encoder's inputs by the names
    that decoders have for them. A mask may be longer than the states, for a decoder that shortens it by itself.
    """

    length: int
    inputs: Mapping[str, tuple[int, ...]]

    def sizes(self, values: list[Value]) -> dict[str, tuple[int, ...]]:
        found = dict(_sizes(values, self.length))
        return {name: self.inputs.get(name, shape) for name, shape in found.items()}


def _sizes(values: list[Value], length: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The sizes of inputs: a batch of 1, and `length` for all other open ones."""
    for value in values:
        shape = shape_of(value.type)
        if shape:
            yield str(value.name), (1, *(length if isinstance(d, SymDim) else d for d in shape[1:]))


def _others(graph: Graph, decoder: Decoder) -> list[Value]:
    """The inputs that come from the encoder."""
    own = {decoder.tokens, decoder.attention, decoder.positions, _BRANCH, *(c.past for c in decoder.caches)}
    return [v for v in graph.inputs if v.name not in own]


def _branch(graph: Graph, has_caches: bool) -> Mapping[str, bool]:
    return {str(v.name): has_caches for v in graph.inputs if v.name == _BRANCH}


def _first(graph: Graph, later: Decoder, options: Options, sizes: tuple[int, int], read: _Read) -> Options:
    new, context = sizes
    others = [v for v in _others(graph, later) if cross_name(str(v.name)) is None]
    crossed = {name: cross for name in graph.output_names if (cross := cross_name(name)) is not None}
    caches = FirstCaches(
        later.tokens, dict(_presents(later.caches)) | crossed | {later.logits: "logits"},
        {c.present: c.axis for c in later.caches}, context, new, {str(v.name): str(v.name) for v in others},
        _branch(graph, False),
    )  # fmt: skip
    outputs = [later.logits, *(c.present for c in later.caches), *crossed]
    return replace(options, caches=caches, outputs=outputs, input_shapes=read.sizes(others))


def _presents(caches: tuple[Cache, ...]) -> Iterator[tuple[str, str]]:
    for cache in caches:
        yield cache.present, cache.name


def _later(graph: Graph, later: Decoder, options: Options, sizes: tuple[int, int], read: _Read) -> Options:
    new, context = sizes
    others = _others(graph, later)
    names = dict(_presents(later.caches)) | {c.past: c.name for c in later.caches} | {later.logits: "logits"}
    renamed = {str(v.name): cross_name(str(v.name)) or str(v.name) for v in others}
    caches = FixedCaches(
        later.tokens, names, {c.past: c.axis for c in later.caches}, _FILLED, context, new, later.attention,
        later.positions, renamed, _branch(graph, True),
    )  # fmt: skip
    outputs = [later.logits, *(c.present for c in later.caches)]
    return replace(options, caches=caches, outputs=outputs, input_shapes=read.sizes(others))
