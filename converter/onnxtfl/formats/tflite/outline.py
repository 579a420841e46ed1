"""The ops of a .tflite file in its own order and with its own tensor names, for tools that name them so."""

from __future__ import annotations

from onnxtfl.dataclass import dataclass
from onnxtfl.formats.source import Content, Source, open_source
from onnxtfl.formats.tflite import schema
from onnxtfl.formats.tflite.decode import Decoded, Decoder, code_number
from onnxtfl.ir.data import PathLike


@dataclass(frozen=True)
class FileOp:
    """An op of the main graph: its name ("CONV_2D", of a custom op that of its code) and that of its first result."""

    op: str
    result: str


def file_ops(source: PathLike | Content) -> tuple[FileOp, ...]:
    """The ops of the main graph of a .tflite that can be read (`onnxtfl.formats.tflite.reader.read`)."""
    model = Decoder(Source(open_source(source))).root(schema.table("Model"))
    graph, names = model["subgraphs"][0], [_name(code) for code in model["operator_codes"] or ()]
    tensors = graph["tensors"] or ()

    def result(outputs: tuple[int, ...]) -> str:
        return (tensors[outputs[0]]["name"] or "") if outputs else ""

    return tuple(FileOp(names[one["opcode_index"]], result(one["outputs"] or ())) for one in graph["operators"] or ())


def _name(code: Decoded) -> str:
    name = schema.builtin_ops()[code_number(code)]
    return str(code["custom_code"] or "") if name == "CUSTOM" else name
