"""Reads a .tflite file as a Model of `tfl` ops, unchanged; weights are memory-mapped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.formats.litertlm import WEIGHTS, read_container
from onnxtfl.formats.source import Content, Source, format_of, is_container, named, open_source
from onnxtfl.formats.tflite import schema
from onnxtfl.formats.tflite.buffers import Buffers
from onnxtfl.formats.tflite.decode import Decoded, Decoder, code_number
from onnxtfl.formats.tflite.metadata import read_metadata
from onnxtfl.formats.tflite.model_tables import SIGNATURE, default_signature
from onnxtfl.formats.tflite.subgraph_reader import SubgraphReader
from onnxtfl.ir.data import PathLike, SourceFile
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.model import Model, Signature

MOST_COPIED = 1 << 17
"""The most nodes of copied subgraphs of a small file: nine recurrent layers in two directions may call one for each of
160 steps, which are 80,000.
"""
MAX_DEPTH = 64
_VERSION = 3


def read(source: PathLike | Content) -> Model:
    """The model in `source` (a path, or the bytes of a file), with graphs of `tfl` ops; those of all sections with
    models of a .litertlm.

    Nodes are `foreign("tfl", "CONV_2D", version)`, custom ops "custom:NAME". Attributes are the fields of the op's
    options table with the format's defaults: enums by name, vectors as tuples (None where absent), Graphs for indices
    of subgraphs; and the operator's `custom_options` (bytes), `mutating_variable_inputs` (bools) and `intermediates`
    (a TensorType or None each), if the file has them. Absent operands are None. A tensor with scales is a float32
    tensor with quantization. Variables are states whose input and output are the same value, unless an op has the
    variable as its result: ops that have it as an operand may update it (:mod:`onnxtfl.formats.tflite.states`). A
    subgraph with two uses is two graphs.

    Inputs and outputs have the names of the signature, if there is one. `Model.subgraphs` are those to which no op
    refers, entry points of signatures first. Weights are left in the file, which must not change until the model is
    written.

    Raises InvalidModelError for invalid models, UnsupportedError for types that the IR lacks. Source: schema.fbs and
    interpreter_builder.cc of LiteRT.
    """
    with named(source):
        file = open_source(source)
        format_of(file, "tflite")
        return _read_container(file) if is_container(file) else _read_file(file)


def _read_file(file: SourceFile, weights: SourceFile | None = None) -> Model:
    opened = Source(file)
    model = Decoder(opened).root(schema.table("Model"))
    if model["version"] != _VERSION:
        opened.fail(f"unknown schema version {model['version']}, only {_VERSION} can be read")
    if not model["subgraphs"]:
        opened.fail("the model has no subgraph")
    return _ModelReader(opened, model, weights).read()


def _read_container(file: SourceFile) -> Model:
    """The model of a .litertlm: that with prefill and decode, and the signatures of the others beside its own.

    A key that an earlier section has gets the type of its model as a prefix: "vision_encoder:serving_default".
    """
    container = read_container(file)
    weights = {section.model_type: section.content for section in container.sections if section.kind == WEIGHTS}
    read = [(one.model_type, _read_file(one.content, weights.get(one.model_type))) for one in container.models()]
    main, *others = read
    model = main[1]
    keys = {signature.key for signature in model.signatures}
    for type_, other in others:
        entries = other.signatures or [default_signature(other.main, type_)]
        entries = [replace(s, key=f"{type_}:{s.key}") if s.key in keys else s for s in entries]
        keys |= {signature.key for signature in entries}
        model.signatures += entries
        model.subgraphs += other.graphs()
        model.data_files += other.data_files
    return model


def overwrite_entries(path: Path, entries: Mapping[str, bytes]) -> None:
    """Replace the contents of these entries of the table `metadata` of a file; contents of another size are not
    replaced.
    """
    opened = Source(open_source(path))
    model = Decoder(opened).root(schema.table("Model"))
    buffers = Buffers(opened, model)
    spans = {entry["name"]: buffers.span(entry["buffer"]) for entry in model["metadata"] or ()}
    with path.open("r+b") as file:
        for name, content in entries.items():
            span = spans.get(name)
            if span is not None and span.length == len(content):
                file.seek(span.offset)
                file.write(content)


def _has_rank_flags(model: Decoded, tensors: Sequence[Decoded]) -> bool:
    """Whether the file sets `has_rank`, or would set it: TensorFlow's converter does since about when it describes
    conversions, and a file without any known rank has no flag.
    """
    if any(t["has_rank"] for t in tensors):
        return True
    described = any(m["name"] == "CONVERSION_METADATA" for m in model["metadata"] or ())
    return described and not any(t["shape"] for t in tensors)


class _ModelReader:
    """Reads the graphs of a model; stores data that subgraphs share."""

    def __init__(self, source: Source, model: Decoded, weights: SourceFile | None) -> None:
        self.model = model
        self.source = source
        self.buffers = Buffers(source, model, weights)
        self.codes = [self._code(code) for code in model["operator_codes"] or ()]
        subgraphs: Sequence[Decoded] = model["subgraphs"]
        self.has_rank_flags = _has_rank_flags(model, [t for s in subgraphs for t in s["tensors"] or ()])
        self._nodes_left = MOST_COPIED + 8 * sum(len(s["operators"] or ()) + 1 for s in subgraphs)

    def read(self) -> Model:
        """The model; subgraph 0, which the interpreter runs, is its main graph."""
        table = self.model
        entries = [s["subgraph_index"] for s in table["signature_defs"] or ()]
        called = {n for subgraph in table["subgraphs"] for n in _callees(subgraph)}
        uncalled = [n for n in range(len(table["subgraphs"])) if n not in called]
        graphs = {n: self.graph(n, (), self._signature(n)) for n in dict.fromkeys([0, *entries, *uncalled])}
        main, *others = graphs.values()
        return Model(
            main,
            "tflite",
            subgraphs=others,
            signatures=[_read_signature(s, graphs, table["subgraphs"]) for s in table["signature_defs"] or ()],
            metadata=read_metadata(table, self.buffers, main, self.source),
            data_files=self.buffers.files.paths(),
        )

    def graph(self, number: int, callers: tuple[int, ...], signature: Mapping[str, Any] | None = None) -> Graph:
        """Subgraph `number`; `callers`: the subgraphs on the path to this use, outermost first."""
        subgraphs = self.model["subgraphs"]
        if not 0 <= number < len(subgraphs):
            self.source.fail(f"malformed: there is no subgraph {number}")
        if number in callers or len(callers) >= MAX_DEPTH:
            raise InvalidModelError(
                f"subgraph {number} is recursive, or over {MAX_DEPTH} calls are nested", code="E-FILE-011"
            )
        self._nodes_left -= 1 + len(subgraphs[number]["operators"] or ())
        if self._nodes_left < 0:
            raise UnsupportedError(
                "its subgraphs have too many uses: one graph for each would be too large", code="E-OP-008"
            )
        return SubgraphReader(self, subgraphs[number], (*callers, number), signature).graph()

    def _code(self, code: Decoded) -> tuple[str, int]:
        """Name and version of an op."""
        number = code_number(code)
        if not 0 <= number < len(schema.builtin_ops()):
            raise UnsupportedError(f"unknown builtin op {number}", hint="a newer onnxtfl may know it", code="E-OP-002")
        name = schema.builtin_ops()[number]
        if name == "CUSTOM":
            name = f"custom:{code['custom_code'] or ''}"
            if not name.isprintable():
                self.source.fail("malformed: the name of a custom op is not printable")
        return name, code["version"]

    def _signature(self, number: int) -> Decoded | None:
        """The signature of subgraph `number` (of several: `serving_default`); None if there is none."""
        found = [s for s in self.model["signature_defs"] or () if s["subgraph_index"] == number]
        found.sort(key=lambda s: s["signature_key"] != SIGNATURE)
        return found[0] if found else None


def _callees(subgraph: Decoded) -> Iterator[int]:
    """The indices of the subgraphs that operators of this one refer to."""
    for operator in subgraph["operators"] or ():
        for union in schema.OPTION_UNIONS:
            table, values = operator[union] or (None, {})
            for field in table.fields if table is not None else ():
                if field.is_graph and values[field.name] is not None:
                    found = values[field.name]
                    yield from [found] if isinstance(found, int) else found


def _read_signature(table: Decoded, graphs: Mapping[int, Graph], subgraphs: Sequence[Decoded]) -> Signature:
    number = table["subgraph_index"]

    def positions(side: str) -> tuple[tuple[str, int], ...]:
        first = {tensor: i for i, tensor in reversed([*enumerate(subgraphs[number][side] or ())])}
        entries = [(e["name"] or "", e["tensor_index"]) for e in table[side] or ()]
        return tuple((name, first[tensor]) for name, tensor in entries if tensor in first)

    return Signature(table["signature_key"] or "", graphs[number], positions("inputs"), positions("outputs"))
