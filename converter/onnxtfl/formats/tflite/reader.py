"""Reads a .tflite file as graphs of `tfl` ops exactly as they are in the file; weights are left in it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onnxtfl.errors import InvalidModelError, OnnxtflError, UnsupportedError
from onnxtfl.formats.tflite import schema
from onnxtfl.formats.tflite.buffers import Buffers
from onnxtfl.formats.tflite.decode import Decoded, Decoder
from onnxtfl.formats.tflite.resources import resources_of
from onnxtfl.formats.tflite.source import Source
from onnxtfl.formats.tflite.subgraph_reader import SubgraphReader
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.model import Model, Signature

IDENTIFIER = b"TFL3"
SIGNATURE = "serving_default"
MAX_DEPTH = 64
_VERSION = 3
_OTHER_FORMATS = (
    (4, b"ORTM", "a model in ONNX Runtime's own format"),
    (0, b"PK\x03\x04", "a ZIP archive"),
    (0, b"\x89HDF", "an HDF5 file"),
    (0, b"version https://git-lfs", "a Git LFS pointer, in place of the file that it points to"),
    (0, b"\x08", "perhaps an ONNX model"),
)


def read(source: str | os.PathLike[str] | bytes | bytearray | memoryview) -> Model:
    """The model in `source` (a path, or a file's bytes), its graphs made of `tfl` ops.

    Nodes are `foreign("tfl", "CONV_2D", version)`, custom ops "custom:NAME". Attributes are the fields of the op's
    options table, the format's defaults filled in: enums by name, vectors as tuples (None where absent), a Graph in
    place of a subgraph's number; and of the operator `custom_options` (bytes), `mutating_variable_inputs` (bools) and
    `intermediates` (a TensorType or None each), where the file has them. Absent operands are None. A tensor with
    scales is a float32 tensor with quantization. Variables are states whose input and output are the same value: the
    ops that take it write it. A subgraph that is used twice is two graphs.

    Inputs and outputs are called as the signature calls them where the file has one. `Model.subgraphs` are those that
    no op of another one names, entry points of signatures first. Weights are left in the file, which has to stay as it
    is until the model is written.

    Raises InvalidModelError for anything that is not a good model, UnsupportedError for what the graph cannot hold.
    Source: schema.fbs of LiteRT, its interpreter_builder.cc for what a reader makes of it.
    """
    opened = Source(source)
    try:
        return _read(opened)
    except OnnxtflError as error:
        if str(opened.file.path) not in error.message:
            error.message = f"{opened.file.path}: {error.message}"
        raise


def _read(source: Source) -> Model:
    head = source.read(0, min(32, source.size))
    if not head:
        source.fail("the file is empty")
    if head[4:8] != IDENTIFIER:
        kinds = [what for place, magic, what in _OTHER_FORMATS if head[place:].startswith(magic)]
        source.fail(", ".join([*kinds[:1], "not a TFLite model: it does not begin with its identifier"]))
    model = Decoder(source).root(schema.table("Model"))
    if model["version"] != _VERSION:
        source.fail(f"version {model['version']} of the format is not known, only {_VERSION}")
    if not model["subgraphs"]:
        source.fail("there is no subgraph in it")
    return _ModelReader(source, model).read()


class _ModelReader:
    """What the subgraphs of a model share."""

    def __init__(self, source: Source, model: Decoded) -> None:
        self.model = model
        self.source = source
        self.buffers = Buffers(source, model["buffers"] or ())
        self.codes = [self._code(code) for code in model["operator_codes"] or ()]
        subgraphs: Sequence[Decoded] = model["subgraphs"]
        self.ranks_are_told = any(t["has_rank"] for s in subgraphs for t in s["tensors"] or ())
        self._left = 1000 + 8 * sum(len(s["operators"] or ()) + 1 for s in subgraphs)

    def read(self) -> Model:
        """All graphs, the one that the interpreter runs first."""
        table = self.model
        entries = [s["subgraph_index"] for s in table["signature_defs"] or ()]
        named = {n for subgraph in table["subgraphs"] for n in _callees(subgraph)}
        alone = [n for n in range(len(table["subgraphs"])) if n not in named]
        graphs = {n: self.graph(n, (), self._signature(n)) for n in dict.fromkeys([0, *entries, *alone])}
        main, *others = graphs.values()
        return Model(
            main,
            "tflite",
            subgraphs=others,
            signatures=[_read_signature(s, graphs, table["subgraphs"]) for s in table["signature_defs"] or ()],
            resources=resources_of(graphs.values()),
            description=table["description"] or "",
            properties={e["name"] or "": self.buffers.raw(e["buffer"]) for e in table["metadata"] or ()},
        )

    def graph(self, number: int, callers: tuple[int, ...], signature: Mapping[str, Any] | None = None) -> Graph:
        """Subgraph `number`, which the subgraphs `callers` came to."""
        subgraphs = self.model["subgraphs"]
        if not 0 <= number < len(subgraphs):
            self.source.fail(f"garbled: there is no subgraph {number}")
        if number in callers or len(callers) >= MAX_DEPTH:
            raise InvalidModelError(f"subgraph {number} calls itself, or calls are nested too deep")
        self._left -= 1 + len(subgraphs[number]["operators"] or ())
        if self._left < 0:
            raise UnsupportedError("its subgraphs are used too often, a graph of each use would be too large")
        return SubgraphReader(self, subgraphs[number], (*callers, number), signature).graph()

    def _code(self, code: Decoded) -> tuple[str, int]:
        """Name and version; the old field of one byte and the new one, whichever is larger, tell the op."""
        number = max(code["deprecated_builtin_code"], _number(code["builtin_code"]))
        if not 0 <= number < len(schema.builtin_ops()):
            raise UnsupportedError(f"unknown builtin op {number}", hint="the file is newer than this program")
        name = schema.builtin_ops()[number]
        if name == "CUSTOM":
            name = f"custom:{code['custom_code'] or ''}"
            if not name.isprintable():
                self.source.fail("garbled: a custom op has a name that cannot be printed")
        return name, code["version"]

    def _signature(self, number: int) -> Decoded | None:
        """The signature that names the inputs and outputs of subgraph `number`."""
        found = [s for s in self.model["signature_defs"] or () if s["subgraph_index"] == number]
        found.sort(key=lambda s: s["signature_key"] != SIGNATURE)
        return found[0] if found else None


def _callees(subgraph: Decoded) -> Iterator[int]:
    """The numbers of the subgraphs that operators of this one name."""
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
        tensors = list(subgraphs[number][side] or ())
        entries = [(e["name"] or "", e["tensor_index"]) for e in table[side] or ()]
        return tuple((name, tensors.index(tensor)) for name, tensor in entries if tensor in tensors)

    return Signature(table["signature_key"] or "", graphs[number], positions("inputs"), positions("outputs"))


def _number(builtin_code: Any) -> int:
    """The number of a decoded op code, which is a name where it is known."""
    return schema.builtin_code(builtin_code) if isinstance(builtin_code, str) else int(builtin_code)
