"""The text form of a graph: printer and parser.

::

    graph main(%x: tensor<1x[n]xfloat32>) -> (%y) {
      %0 = constant tensor<2xint64> [1, -1]
      %y = Reshape(%0, %x) {mode = "a", axis = 1} : tensor<1x[n]xfloat32>
    }

An absent operand is ``_``; an op without results begins the line. Ops of a file's dialect have a version:
``onnx.Conv@11``. Operands may be named, in any order: ``Clamp(min = %0, input = %x)``. A statement may be in the form
of neutral-ops.txt (:mod:`onnxtfl.ir.document`) and becomes our ops. Constants of a quantized type are printed as stored
integers; those with more than `limit` elements are printed as ``...`` and cannot be parsed, or, in a file, as the
packed bytes of their elements in base64. Result types of neutral ops may be omitted; they are inferred then.
"""

from __future__ import annotations

import ast
import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir import document
from onnxtfl.ir import ops as _families  # noqa: F401 - registers the ops
from onnxtfl.ir.builder import Builder, infer, propagate
from onnxtfl.ir.data import ArrayData, TensorData, unpack
from onnxtfl.ir.dims import Dim, known_sizes, parse_dim
from onnxtfl.ir.document import Statement
from onnxtfl.ir.graph import Graph, Node, State, Value, constant
from onnxtfl.ir.op import OPS, Op, Operand, foreign_op
from onnxtfl.ir.ops.identity import Copy
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import DType, OptionalType, ResourceType, SequenceType, TensorType, TupleType, Type

PLAIN = re.compile(r"[A-Za-z0-9_.$-]+\Z")
DEFAULT_LIMIT = 64


def print_graph(graph: Graph, limit: int = DEFAULT_LIMIT, *, documented: bool = False) -> str:
    """The text of `graph`, with at most `limit` elements of each constant; `documented`: in the document's form."""
    return "\n".join(_Printer(limit, documented).graph(graph)) + "\n"


def graph_lines(graph: Graph, limit: int = DEFAULT_LIMIT, *, whole: bool = False) -> Iterator[str]:
    """The lines of the text of `graph`; `whole`: with the elements of all constants."""
    return _Printer(limit, whole=whole).graph(graph)


class _Printer:
    def __init__(self, limit: int, documented: bool = False, whole: bool = False) -> None:
        self.limit, self.whole = limit, whole
        self.documented = documented
        self.names: dict[Value, str] = {}
        self.taken: set[str] = set()

    def graph(self, graph: Graph) -> Iterator[str]:
        body: list[str] = []
        inputs = ", ".join(f"{self.name(v)}: {v.type and type_text(v.type)}" for v in graph.inputs)
        for node in graph.nodes:
            statement = self._statement(node)
            body += self.constants(statement.operands)
            body += self.node(node, statement)
        body += self.constants([*graph.outputs, *(s.output for s in graph.states)])
        outputs = ", ".join(self.name(v) for v in graph.outputs)
        yield f"graph {_word(graph.name)}({inputs}) -> ({outputs}) {{"
        for state in graph.states:
            initial = "" if state.initial is None else f" = {self.data(state.initial)}"
            yield f"  state {self.name(state.input)}: {state.input.type} -> {self.name(state.output)}{initial}"
        yield from (f"  {line}" for line in body)
        yield "}"

    def _statement(self, node: Node) -> Statement:
        is_documented = self.documented and node.op.dialect == "neutral"
        return document.printed(node) if is_documented else Statement(node.operands, node.attributes)

    def constants(self, values: Iterable[Value | None]) -> Iterator[str]:
        for value in values:
            if value is not None and value.data is not None and value not in self.names:
                word = "constant".title() if self.documented else "constant"
                yield f"{self.name(value)} = {word} {self.data(value.data, value.tensor_type)}"

    def node(self, node: Node, statement: Statement) -> Iterator[str]:
        results = ", ".join(self.name(v) for v in node.results)
        shown = ["_" if v is None else self.name(v) for v in statement.operands]
        if statement.names:
            shown = [f"{name} = {value}" for name, value in zip(statement.names, shown, strict=True)]
        attributes = ", ".join(f"{k} = {self.attribute(v)}" for k, v in sorted(statement.attributes.items()))
        types = ", ".join(type_text(v.type) if v.type is not None else "?" for v in node.results)
        op = self._name_of(node) if node.op.dialect == "neutral" else f"{_word(node.op.name)}@{node.op.version}"
        op += f"@{_word(node.op.domain)}" if node.op.domain else ""
        text = f"{op}({', '.join(shown)}){f' {{{attributes}}}' if attributes else ''}"
        yield from (f"{results} = {text} : {types}" if node.results else text).split("\n")

    def _name_of(self, node: Node) -> str:
        """Return the name of a neutral op, or its name in the document if requested."""
        return node.op.documented_name(node) if self.documented else node.op.name

    def name(self, value: Value) -> str:
        if value not in self.names:
            wanted = value.name or str(len(self.names))
            name, count = wanted, 0
            while name in self.taken:
                count += 1
                name = f"{wanted}_{count}"
            self.taken.add(name)
            self.names[value] = f"%{_word(name)}"
        return self.names[value]

    def data(self, data: TensorData, type_: TensorType | None = None) -> str:
        """The type (by default that of the stored elements) and the stored elements."""
        shown = type_ or TensorType(data.dtype, data.shape)
        if data.size > self.limit and not self.whole:
            return f"{shown} ..."
        if data.size > self.limit and data.dtype is not DType.STRING:
            packed = b"".join(chunk.tobytes() for chunk in data.chunks())
            return f'{shown} base64 "{base64.b64encode(packed).decode("ascii")}"'
        return f"{shown} [{self.elements(data)}]"

    @staticmethod
    def elements(data: TensorData) -> str:
        """The stored elements, separated by commas."""
        return ", ".join(element_text(e, data.dtype) for e in data.numpy().reshape(-1).tolist())

    def attribute(self, value: Any) -> str:
        match value:
            case bool() | None:
                return str(value).lower()
            case int() | float():
                return repr(value)
            case str():
                return json.dumps(value)
            case bytes():
                return f"hex {json.dumps(value.hex())}"
            case DType():
                return f"!{value.value}"
            case TensorData():
                return f"data {self.data(value)}"
            case TensorType() | SequenceType() | OptionalType() | TupleType() | ResourceType():
                return f"type {value}"
            case Graph():
                return "\n".join(self.graph(value))
            case tuple() | list():
                return f"[{', '.join(self.attribute(v) for v in value)}]"
            case dict():
                return f"{{{', '.join(f'{_word(k)} = {self.attribute(v)}' for k, v in sorted(value.items()))}}}"
        raise TypeError(f"no text form for the attribute {value!r}")


def type_text(type_: Type) -> str:
    """The text of a type; of a tuple with all elements."""
    return f"tuple<{', '.join(map(type_text, type_.elements))}>" if isinstance(type_, TupleType) else str(type_)


def element_text(element: Any, dtype: DType) -> str:
    """The text of an element of a constant."""
    if dtype is DType.STRING:
        text = element.decode("latin-1") if isinstance(element, bytes) else str(element)
        return json.dumps(text)
    if dtype is DType.BOOL:
        return "true" if element else "false"
    return repr(element)


def _word(name: str) -> str:
    return name if PLAIN.match(name) else json.dumps(name)


_TOKEN = re.compile(
    r"""\s*(?:\#[^\n]*\s*)*("(?:[^"\\]|\\.)*" | -> | \.\.\. | -?inf\b | nan\b
    | -?\d+\.?\d*(?:[eE][-+]?\d+)?(?![\w]) | %[A-Za-z0-9_.$-]+ | %" | [A-Za-z_?*][\w.$-]* | [^\s])""",
    re.VERBOSE,
)


class TextError(ValueError):
    """A syntax error in the text of a graph; the message has the line."""


def parse_graph(text: str) -> Graph:
    """Parse `text` to a graph; TextError for invalid text."""
    parser = _Parser(text)
    graph = parser.graph()
    parser.end()
    return graph


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.position = text, 0

    # tokens

    def peek(self) -> str:
        match = _TOKEN.match(self.text, self.position)
        return match[1] if match else ""

    def take(self, wanted: str | None = None) -> str:
        match = _TOKEN.match(self.text, self.position)
        token = match[1] if match else ""
        if wanted is not None and token != wanted:
            raise self.error(f"{wanted!r} expected, not {token!r}")
        if match:
            self.position = match.end()
        return token

    def accept(self, token: str) -> bool:
        if self.peek() != token:
            return False
        self.take()
        return True

    def error(self, message: str) -> TextError:
        return TextError(f"line {self.text.count(chr(10), 0, self.position) + 1}: {message}")

    def end(self) -> None:
        if self.peek():
            raise self.error(f"end of text expected, not {self.peek()!r}")

    def upto(self, stop: str) -> str:
        """Consume the raw text up to and including `stop`; return the text before it."""
        found = self.text.find(stop, self.position)
        if found < 0:
            raise self.error(f"{stop!r} expected")
        text, self.position = self.text[self.position : found], found + len(stop)
        return text.strip()

    def listed(self, close: str, item: Callable[[], Any]) -> list[Any]:
        items: list[Any] = []
        while not self.accept(close):
            if items:
                self.take(",")
            items.append(item())
        return items

    def word(self) -> str:
        token = self.take()
        return json.loads(token) if token.startswith('"') else token

    # graphs

    def graph(self) -> Graph:
        self.take("graph")
        graph = Graph(self.word())
        values: dict[str, Value] = {}
        self.take("(")
        self.listed(")", lambda: self._input(graph, values))
        self.take("->")
        self.take("(")
        outputs = self.listed(")", self.value_name)
        self.take("{")
        states: list[tuple[Value, str, ArrayData | None]] = []
        while not self.accept("}"):
            if self.accept("state"):
                states.append(self._state(values))
            else:
                self._statement(graph, values)
        graph.outputs = [self._known(values, name) for name in outputs]
        graph.states = [State(value, self._known(values, name), initial) for value, name, initial in states]
        return graph

    def _input(self, graph: Graph, values: dict[str, Value]) -> None:
        name = self.value_name()
        self.take(":")
        values[name] = graph.add_input(self.type(), _own(name))

    def _state(self, values: dict[str, Value]) -> tuple[Value, str, ArrayData | None]:
        name = self.value_name()
        self.take(":")
        values[name] = value = Value(self.type(), _own(name))
        self.take("->")
        output = self.value_name()
        return value, output, self.data() if self.accept("=") else None

    def _statement(self, graph: Graph, values: dict[str, Value]) -> None:
        names = []
        while self.peek().startswith("%"):
            names.append(self.value_name())
            if not self.accept(","):
                self.take("=")
                break
        if names and any(self.accept(word) for word in ("constant", "constant".title())):
            whole = self.type()
            values[names[0]] = constant(self.data(whole), name=_own(names[0]), type_=whole)
            return
        op, statement = self._call(values)
        types = self._types(len(names)) if names and self.accept(":") else None
        if op.dialect == "neutral":
            form, statement = document.read(op, statement, types or [None] * len(names))
            if form is not None:
                b = Builder(graph)
                made = form.built(b, self._placed(statement, form.operands), statement.attributes)
                values.update(zip(names, self._bound(b, names, made, types), strict=True))
                return
        self._insert(graph, values, names, Node(op, self._placed(statement, op.operands), statement.attributes), types)

    def _insert(
        self, graph: Graph, values: dict[str, Value], names: list[str], node: Node, types: list[Type | None] | None
    ) -> None:
        """Insert a node as it is written."""
        types = types if types is not None else list(infer(node)) if names else []
        known = propagate(node, types)
        for name, type_, contents in zip(names, types, known, strict=True):
            values[name] = node.add_result(type_, _own(name))
            values[name].known = contents
        graph.insert(node)

    def _bound(
        self, b: Builder, names: list[str], made: list[Value], types: list[Type | None] | None
    ) -> Iterator[Value]:
        """The values made for a statement in the document's form, with the names on its left and the declared types."""
        if len(names) != len(made):
            raise self.error(f"{len(made)} results, not {len(names)}")
        for name, value, type_ in zip(names, made, types or [None] * len(made), strict=True):
            own = value if value.producer in b.created and value.name is None else b(Copy, value)
            own.name, own.type = _own(name), type_ or own.type
            yield own

    def _call(self, values: dict[str, Value]) -> tuple[type[Op], Statement]:
        op = self._op()
        self.take("(")
        operands = self.listed(")", lambda: self._operand(values))
        attributes = dict(self.listed("}", self._attribute)) if self.accept("{") else {}
        names = tuple(name for name, _ in operands)
        if any(names) and not all(names):
            raise self.error("either all operands are named or none")
        return op, Statement([v for _, v in operands], attributes, names if any(names) else ())

    def _placed(self, statement: Statement, declared: Sequence[Operand]) -> list[Value | None]:
        """The operands in the order in which they are declared."""
        if not statement.names:
            return list(statement.operands)
        given = dict(zip(statement.names, statement.operands, strict=True))
        known = [operand.name for operand in declared]
        if len(given) < len(statement.names) or not given.keys() <= set(known):
            raise self.error(f"operands {', '.join(statement.names)}, but there are {', '.join(known)}")
        return Op.trimmed(given.get(name) for name in known)

    def _op(self) -> type[Op]:
        name = self.word()
        if not self.accept("@"):
            found = OPS.get(name) or next((op for op in OPS.values() if op.documented == name), None)
            if found is None:
                raise self.error(f"unknown op {name!r}")
            return found
        version = int(self.take())
        domain = self.word() if self.accept("@") else ""
        dialect, _, rest = name.partition(".")
        return foreign_op(dialect, rest, version, domain)

    def _types(self, count: int) -> list[Type | None]:
        types: list[Type | None] = []
        for i in range(count):
            if i:
                self.take(",")
            types.append(None if self.accept("?") else self.type())
        return types

    def _operand(self, values: dict[str, Value]) -> tuple[str, Value | None]:
        """An operand, and its name if it is named."""
        if self.accept("_"):
            return "", None
        name = self.word() if self.peek().isidentifier() else ""
        if name:
            self.take("=")
        return name, None if name and self.accept("_") else self._known(values, self.value_name())

    def _known(self, values: dict[str, Value], name: str) -> Value:
        if name not in values:
            raise self.error(f"%{name} is not defined")
        return values[name]

    def value_name(self) -> str:
        token = self.take()
        if token == '%"':
            self.position -= 1
            return str(json.loads(self.take()))
        if not token.startswith("%") or len(token) < 2:
            raise self.error(f"a value expected, not {token!r}")
        return token[1:]

    # attributes and types

    def _attribute(self) -> tuple[str, Any]:
        name = self.word()
        self.take("=")
        return name, self.attribute()

    def attribute(self) -> Any:
        token = self.peek()
        if token == "graph":
            return self.graph()
        self.take()
        if token == "[":
            return tuple(self.listed("]", self.attribute))
        if token == "(":
            return complex(self.upto(")"))
        if token == "{":
            return dict(self.listed("}", self._attribute))
        if token.startswith('"'):
            return json.loads(token)
        if token == "!":
            return DType(self.take())
        words: dict[str, Callable[[], Any]] = {
            "true": lambda: True,
            "false": lambda: False,
            "none": lambda: None,
            "hex": lambda: bytes.fromhex(self.word()),
            "data": self.data,
            "type": self.type,
        }
        return words[token]() if token in words else self._number(token)

    def _number(self, token: str) -> int | float:
        try:
            return float(token) if token in ("inf", "-inf", "nan") else ast.literal_eval(token)
        except (ValueError, SyntaxError) as error:
            raise self.error(f"a value expected, not {token!r}") from error

    def data(self, type_: Type | None = None) -> ArrayData:
        type_ = type_ or self.type()
        if not isinstance(type_, TensorType) or not type_.is_static:
            raise self.error("the type of a constant has to be static")
        shape = known_sizes(type_.shape or ())
        if self.accept("base64"):
            return self._packed(type_.storage, shape)
        self.take("[")
        elements = self.listed("]", self.attribute)
        array = np.asarray(elements, object if type_.dtype is DType.STRING else None).astype(type_.storage.numpy)
        return ArrayData(array.reshape(shape), type_.storage)

    def _packed(self, dtype: DType, shape: Sequence[int]) -> ArrayData:
        """The elements of a constant whose packed bytes are in base64."""
        try:
            packed = np.frombuffer(base64.b64decode(self.word(), validate=True), np.uint8)
            return ArrayData(unpack(packed, dtype, shape), dtype)
        except ValueError as error:
            raise self.error(f"not the elements of a constant: {error}") from error

    def type(self) -> Type:
        kind = self.take()
        self.take("<")
        if kind == "tensor":
            return self._tensor_type()
        if kind == "resource":
            return ResourceType(self.upto(">"))
        if kind == "tuple":
            return TupleType(tuple(self.listed(">", self.type)))
        element = self.type()
        self.take(">")
        if kind not in ("sequence", "optional"):
            raise self.error(f"unknown type {kind!r}")
        return SequenceType(element) if kind == "sequence" else OptionalType(element)

    def _tensor_type(self) -> TensorType:
        shape: list[Dim] | None = []
        while match := re.compile(r"\s*(\*|\d+|\[[^\]]*\])x").match(self.text, self.position):
            self.position = match.end()
            shape = None if match[1] == "*" else [*(shape or []), parse_dim(match[1].strip("[]"))]
        dtype = DType(self.take())
        quantization = self._quantization() if self.accept(",") else None
        self.take(">")
        return TensorType(dtype, None if shape is None else tuple(shape), quantization)

    def _quantization(self) -> Quantization:
        self.take("quant")
        self.take("<")
        storage, *rest = self.upto(">").split()
        places = dict(word.split("=") for word in rest if "=" in word)
        pairs = [word.split(":") for word in rest if "=" not in word]
        axis, block = (int(places[k]) if k in places else None for k in ("axis", "block"))
        return Quantization(storage, tuple(float(s) for s, _ in pairs), tuple(int(z) for _, z in pairs), axis, block)


def _own(name: str) -> str | None:
    """The value's name; None for a number, which is printed for values without a name."""
    return None if name.isdigit() else name
