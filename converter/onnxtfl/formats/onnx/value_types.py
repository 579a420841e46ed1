"""TypeProto as types of the IR, named dimensions as symbols."""

from __future__ import annotations

import keyword
import re

from onnx import TensorShapeProto, TypeProto, ValueInfoProto

from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.formats.onnx.names import name_of
from onnxtfl.formats.onnx.tensors import element_type, static_shape
from onnxtfl.formats.unique import UniqueNames
from onnxtfl.ir.dims import Dim, Shape, SymDim, fresh_symbol, known_sizes, symbol
from onnxtfl.ir.types import DType, MapsType, OptionalType, SequenceType, TensorType, Type

_NOT_A_NAME = re.compile(r"[\W\d_]*|None|unk(nown)?")


class ValueTypes:
    """Reads the types of one model; `names`: dimension name in the file -> symbol."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self._unique = UniqueNames(first=2)

    def of(self, info: ValueInfoProto, where: str) -> Type | None:
        """The type of a graph's input or output; None if the file has none."""
        return self.read(info.type, f"{where} {info.name!r}") if info.HasField("type") else None

    def read(self, proto: TypeProto, where: str) -> Type | None:
        """`proto` as a type; None if it is empty, UnsupportedError for maps and opaque types."""
        kind = proto.WhichOneof("value")
        if kind is None:
            return None
        content = getattr(proto, kind)
        if kind in ("tensor_type", "sparse_tensor_type"):
            dtype = element_type(content.elem_type, where)
            return TensorType(dtype, self._shape(content.shape, dtype, where) if content.HasField("shape") else None)
        if kind == "sequence_type" and content.elem_type.HasField("map_type") and " output " in f" {where} ":
            return self._of_maps(content.elem_type.map_type, where)
        if kind in ("sequence_type", "optional_type"):
            element = self.read(content.elem_type, where)
            if element is None:
                raise InvalidModelError(f"{where} is a {kind[:8]} without an element type")
            return SequenceType(element) if kind == "sequence_type" else OptionalType(element)
        raise UnsupportedError(
            f"{where} has the type {kind.removesuffix('_type')}, which cannot be converted", code="E-TYPE-002"
        )

    def _of_maps(self, proto: TypeProto.Map, where: str) -> MapsType:
        values = TensorType(element_type(proto.value_type.tensor_type.elem_type, where), (fresh_symbol(),))
        return MapsType(values, element_type(proto.key_type, where))

    def _shape(self, proto: TensorShapeProto, dtype: DType, where: str) -> Shape:
        dims = tuple(self._dim(d) for d in proto.dim)
        static_shape(known_sizes(dims), dtype, where)
        return dims

    def _dim(self, dim: TensorShapeProto.Dimension) -> Dim:
        """A size, the symbol of the dimension's name, or a new symbol. A size of -1 is unknown, as in ONNX Runtime."""
        if dim.HasField("dim_value") and dim.dim_value != -1:
            return int(dim.dim_value)
        name = name_of(dim.dim_param) if dim.HasField("dim_param") else ""
        return fresh_symbol() if _NOT_A_NAME.fullmatch(name) else self.symbol(name)

    def symbol(self, name: str) -> SymDim:
        """The symbol for the dimension `name`, an identifier, as the text form needs."""
        if name not in self.names:
            wanted = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "n"
            wanted = f"_{wanted}" if wanted[0].isdigit() or keyword.iskeyword(wanted) else wanted
            self.names[name] = self._unique.fresh(wanted)
        return symbol(self.names[name])
