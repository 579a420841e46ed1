"""The contents of a model file: a summary, and its graph as text, also after a step of its conversion."""

from __future__ import annotations

import difflib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from onnxtfl.arguments import conversion_options, model_kind, of_command
from onnxtfl.errors import OnnxtflError, UnsupportedError, UsageError
from onnxtfl.formats import files
from onnxtfl.formats.archive import file_names
from onnxtfl.formats.bodies import body
from onnxtfl.formats.litertlm import Section, read_container
from onnxtfl.formats.llm_metadata import described
from onnxtfl.formats.neutral import lines as whole_lines
from onnxtfl.formats.source import Content, is_container, open_source
from onnxtfl.formats.tflite.tflite_metadata import normalizations
from onnxtfl.ir.data import PathLike, TensorData
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.model import Model
from onnxtfl.ir.text import element_text, graph_lines
from onnxtfl.ir.types import Type
from onnxtfl.kinds import Size
from onnxtfl.option_table import INSPECT
from onnxtfl.options import Options
from onnxtfl.pipeline import inspect as graph_after
from onnxtfl.pipeline import lifted_where_possible
from onnxtfl.rewriting.lift import lift_node, op_name
from onnxtfl.tables import WIDTH, Row, as_html, as_text, byte_count, printable, ranked, some, titled
from onnxtfl.temporary import Folder

if TYPE_CHECKING:
    import onnx

    from onnxtfl.op_times import OpTimes
    from onnxtfl.placement import Placement

T = TypeVar("T")
SHORT = 8
"""Constants with more elements are printed as "..."."""
MOST_NODES = 3000
"""The most neutral ops of a model that is converted to find ops that the target refuses."""


@dataclass(frozen=True)
class Unsupported:
    """Ops without a conversion: the op with its version, how many there are, and why."""

    op: str
    count: int
    reason: str


@dataclass(frozen=True)
class FileSummary:
    """A summary of the contents of a model file.

    ``size``: bytes with external data. ``versions``: of each opset domain, or of TFLite's schema. ``inputs``,
    ``outputs``: name and type. ``ops``: the number of nodes by operator, those of regions and other subgraphs included.
    ``parameters``, ``parameter_bytes``: elements and bytes of all constants. ``signatures``: entry points with the
    names of their inputs and outputs. ``states``: values that are kept from run to run. ``unsupported``: ops of the
    main graph without a conversion to the other format. ``descriptions``: documentation of inputs and outputs by name.
    ``normalization``: mean and deviation of inputs that TFLite Metadata names, as text. ``files``: names of the
    associated files. ``container``: the version of a .litertlm and its properties, ``sections``: its sections in order.
    """

    format: str
    size: int
    producer: str
    versions: Mapping[str, int]
    description: str
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    ops: Mapping[str, int]
    parameters: int
    parameter_bytes: int
    subgraphs: int
    signatures: tuple[str, ...]
    functions: tuple[str, ...]
    states: tuple[str, ...]
    metadata: tuple[str, ...]
    unsupported: tuple[Unsupported, ...]
    descriptions: Mapping[str, str] = field(default_factory=dict)
    normalization: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    container: str = ""
    sections: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class Inspection:
    """A summary of a model file, and its graphs after the step ``stage`` ("file": as they were read).

    ``placement``: where each op of a .tflite runs, ``times``: the time of each op, if that was asked.

    Printed, it is what `onnxtfl inspect` prints: the summary, then the graphs.
    """

    name: str
    summary: FileSummary
    stage: str
    graphs: tuple[Graph, ...]
    placement: Placement | None = None
    times: OpTimes | None = None

    def rows(self, verbose: bool = False) -> list[Row]:
        """The summary, as the rows of a table."""
        found = self.summary
        versions = ", ".join(f"{domain} {version}" for domain, version in found.versions.items())
        rows = [Row("model", self.name), Row("format", f"{found.format}{f' ({versions})' if versions else ''}")]
        rows += titled("container", [found.container] if found.container else [])
        rows += titled("sections", found.sections)
        rows += [Row("producer", found.producer)] if found.producer else []
        rows += [Row("about", found.description[:400])] if found.description else []
        rows += titled("inputs", map(self._described, found.inputs))
        rows += titled("outputs", map(self._described, found.outputs))
        rows += titled("normalize", found.normalization)
        rows += titled("signatures", found.signatures)
        rows += titled("states", [some(found.states, verbose)] if found.states else [])
        rows.append(Row("ops", f"{sum(found.ops.values())}: {ranked(found.ops, verbose)}" if found.ops else "0"))
        rows += [Row("subgraphs", f"{found.subgraphs} besides the main graph")] if found.subgraphs else []
        rows += [Row("functions", some(found.functions, verbose))] if found.functions else []
        rows.append(Row("parameters", f"{found.parameters:,} ({byte_count(found.parameter_bytes)})"))
        rows.append(Row("size", byte_count(found.size)))
        rows += [Row("metadata", some(found.metadata, verbose))] if found.metadata else []
        rows += [Row("files", some(found.files, verbose))] if found.files else []
        none = [Row("unsupported", "none: each op has a conversion", "green")]
        lines = [f"{one.count} {one.op}: {one.reason}" for one in found.unsupported]
        rows += titled("unsupported", lines, "red") or none
        rows += [] if self.placement is None else self.placement.rows(verbose)
        return rows + ([] if self.times is None else self.times.rows(verbose))

    def _described(self, spec: tuple[str, str]) -> str:
        """Name, type and description of an input or output."""
        name, type_ = spec
        return f"{name}  {type_}  {self.summary.descriptions.get(name, '')[:200]}".rstrip()

    def table(self, verbose: bool = False, width: int = WIDTH) -> str:
        """The summary as text, wrapped at spaces to ``width`` columns."""
        return as_text(self.rows(verbose), width)

    def lines(self) -> Iterator[str]:
        """The graphs as text, line by line; constants of more than 8 elements are "..."."""
        for graph in self.graphs:
            yield from map(printable, graph_lines(graph, SHORT))

    def text(self) -> str:
        """The first graph as text with the elements of all constants, which `build_model` reads."""
        return "".join(f"{line}\n" for line in whole_lines(self.graphs[0]))

    def diff(self, other: Inspection) -> Iterator[str]:
        """Return the differences to the graphs of ``other`` in the unified diff format; empty if they are equal.

        The numbers of unnamed values are omitted (``%_``), since an additional value would change all following lines.
        """
        old, new = (_without_numbers(one.lines()) for one in (self, other))
        names = [f"{one.name} ({one.stage})" for one in (self, other)]
        yield from difflib.unified_diff(old, new, names[0], names[1], lineterm="", n=2)

    def to_json(self, graph: bool = True) -> dict[str, Any]:
        """The summary as JSON values; ``graph``: with the nodes of all graphs."""
        found = {"model": self.name, "stage": self.stage, **asdict(self.summary)}
        for side in ("inputs", "outputs"):
            found[side] = [{"name": name, "type": type_} for name, type_ in found[side]]
        if self.placement is not None:
            found["placement"] = self.placement.to_json()
        if self.times is not None:
            found["times"] = self.times.to_json()
        return found | ({"graphs": [_graph_json(one) for one in self.graphs]} if graph else {})

    def __repr__(self) -> str:
        ops = sum(self.summary.ops.values())
        return f"<Inspection of {self.name!r}: {self.summary.format}, {ops} ops, stage {self.stage!r}>"

    def __str__(self) -> str:
        return self.table() + "\n" + "\n".join(self.lines())

    def _repr_html_(self) -> str:
        return as_html(self.rows())


def _without_numbers(lines: Iterable[str]) -> list[str]:
    return [re.sub(r"%\d+\b", "%_", line) for line in lines]


def inspect(
    model: PathLike | bytes | onnx.ModelProto,
    stage: str = "file",
    *,
    input_shapes: Mapping[str, Sequence[Size]] | None = None,
    dims: Mapping[str, int] | None = None,
    elements: Mapping[str, int | None] | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    placement: str | None = None,
    profile: bool = False,
) -> Inspection:
    """Return what is in a model (.onnx, .tflite or .litertlm), with its graph after a step of its conversion to the
    other format.

    ``stage``: "file" (as it was read), "lifted", or the name of a pass (see `stages`). ``input_shapes``, ``dims``,
    ``elements``, ``inputs``, ``outputs``: of the conversion, for other stages than "file"; see `onnx_to_tflite`.
    ``profile``: also measure the time of each op of the file, in LiteRT or ONNX Runtime, on inputs of ``input_shapes``
    and ``dims``.
    ``placement``: also say where each op of a .tflite file runs: on "cpu" (LiteRT and its delegate), "micro",
    "ethos-u55" or another target; for an NPU, Vela decides (``pip install 'onnxtfl[ethos-u]'``), else a table. Raises
    `InvalidModelError`, `UnsupportedError`, and `UsageError` for an unknown stage.
    """
    given = of_command(INSPECT, locals())
    asked, measured = given.pop("placement"), given.pop("profile")
    used = {"stage", *(("input_shapes", "dims") if measured else ())}
    unused = next((name for name, value in given.items() if value and name not in used), None)
    if stage == "file" and unused is not None:
        raise UsageError(f"`{unused}` has no effect on the file itself", hint="name a later step with `stage`")
    model_kind(model, "model", ("a path", "bytes", "an onnx.ModelProto"))
    name = os.fspath(model) if isinstance(model, str | os.PathLike) else "model"
    source: Any = model
    if not isinstance(model, str | os.PathLike | Content):
        source = model.SerializeToString()
    read = files.read(source)
    if stage == "file":
        placed = None if asked is None else _of_file(source, read, lambda path: _placed(path, asked))
        sizes = given["input_shapes"], given["dims"]
        times = _of_file(source, read, lambda path: _times(path, *sizes)) if measured else None
        return Inspection(name, _summary(source, read), stage, tuple(read.graphs()), placed, times)
    if asked is not None or measured:
        what = "profile" if asked is None else "placement"
        raise UsageError(f"`{what}` is of the file itself", hint="leave out `stage`")
    graph = graph_after(source, stage, conversion_options(given))
    return Inspection(name, _summary(source, read), stage, (graph,))


def _of_file(source: Any, read: Model, asked: Callable[[PathLike], T]) -> T:
    """The result of `asked` for a model file, which is written first if the model is in memory or in a container."""
    in_sections = files.is_container(source)
    if isinstance(source, str | os.PathLike) and not in_sections:
        return asked(source)
    with Folder() as folder:
        file = folder / f"model.{read.format}"
        if in_sections:
            return asked(files.write(read, file))
        file.write_bytes(bytes(source))
        return asked(file)


def _placed(model: PathLike, target: str) -> Placement:
    from onnxtfl.placement import place

    return place(model, target)


def _times(model: PathLike, input_shapes: Any, dims: Any) -> OpTimes:
    from onnxtfl.op_times import op_times

    return op_times(model, input_shapes, dims)


def _summary(model: Any, read: Model) -> FileSummary:
    is_file = isinstance(model, str | os.PathLike)
    constants = _constants(read)
    counts = Counter(op_name(node) for node in _nodes_in_file(read))
    main, producer = read.main, read.metadata.producer
    states, unsupported = _converted(model, read)
    container, sections = _container(model)
    return FileSummary(
        read.format or "onnx",
        files.bytes_on_disk(read, model) if is_file else len(model),
        " ".join(part for part in (producer.name, producer.version) if part),
        {domain or "ai.onnx": version for domain, version in read.opsets.items()} | _ir_version(read),
        read.metadata.description.strip(),
        tuple((value.name or "", str(value.type)) for value in main.inputs),
        tuple((name, str(value.type)) for name, value in zip(main.names_of_outputs, main.outputs, strict=True)),
        dict(counts.most_common()),
        sum(data.size for data in constants),
        sum(data.nbytes for data in constants),
        len(read.subgraphs),
        tuple(_signature(read)),
        tuple(name for _, name, _ in read.functions),
        states,
        tuple(read.metadata.properties),
        unsupported,
        {name: text for name, text in read.metadata.descriptions.items() if name in _ends(main)},
        tuple(normalizations(read.metadata.tflite)),
        file_names(read.metadata.files),
        container,
        sections,
    )


def _container(model: Any) -> tuple[str, tuple[str, ...]]:
    """A .litertlm's version and properties, and its sections, as texts; empty for another file."""
    with open_source(model) as opened:
        if not is_container(opened):
            return "", ()
        found = read_container(opened)
        pairs = "".join(f", {key} {value}" for key, value in found.properties.items())
        return f"LiteRT-LM, format {found.version}{pairs}", tuple(map(_section, found.sections))


def _section(section: Section) -> str:
    """A section as text: its kind, its bytes, its properties, and what is known of its contents."""
    pairs = [f"{key} {value}" for key, value in section.properties.items()]
    return "; ".join(
        [f"{section.kind}, {byte_count(section.content.size)}", *pairs, *filter(None, [described(section)])]
    )


def _ends(graph: Graph) -> set[str]:
    """The names of the inputs and outputs."""
    return {v.name or "" for v in graph.inputs} | set(graph.names_of_outputs)


def _ir_version(read: Model) -> dict[str, int]:
    version = read.metadata.producer.ir_version
    return {"IR version": version} if version else {}


def _signature(read: Model) -> Iterator[str]:
    for signature in read.signatures:
        sides = (", ".join(name for name, _ in side) for side in (signature.inputs, signature.outputs))
        yield f"{signature.key}({next(sides)}) -> {next(sides)}"


def _constants(read: Model) -> list[TensorData]:
    """The constants of all graphs, each once."""
    found = [v.data for graph in read.graphs() for v in graph.outputs if v.data is not None]
    for node in _nodes_in_file(read):
        found += [v.data for v in node.present_operands if v.data is not None]
        found += [value for value in node.attributes.values() if isinstance(value, TensorData)]
    return list({data.key: data for data in found}.values())


def _nodes_in_file(read: Model) -> Iterator[Node]:
    """The nodes of all graphs; a subgraph of the file that several nodes call is read for each, and counts once."""
    pending, seen = list(read.graphs()), set[Graph | int]()
    while pending:
        graph = pending.pop()
        place = graph if graph.number is None else graph.number
        if place not in seen:
            seen.add(place)
            for node in graph.nodes:
                yield node
                pending += node.regions


def _converted(model: Any, read: Model) -> tuple[tuple[str, ...], tuple[Unsupported, ...]]:
    """The states of the main graph, and the ops that cannot be lifted, as far as their operands are known.

    Results in `read` get the types that lifting infers, where the file has none.
    """
    try:
        graph = lifted_where_possible(files.read(model))
    except OnnxtflError as error:
        return (), (Unsupported("graph", 1, error.message),)
    _add_types(read.main, graph)
    reasons = Counter[tuple[str, str]]()
    for node in graph.walk():
        if node.op.dialect != "neutral" and (reason := _reason(node)):
            reasons[f"{op_name(node)}-{node.op.version}", reason] += 1
    states = tuple(state.input.name or "" for state in graph.states)
    found = tuple(Unsupported(op, count, reason) for (op, reason), count in reasons.most_common())
    return states, found or _refused(model, sum(1 for _ in graph.walk()))


def _refused(model: Any, nodes: int) -> tuple[Unsupported, ...]:
    """The first op without a kernel of the target, found by a conversion; large graphs are not tried."""
    if nodes > MOST_NODES:
        return ()
    try:
        graph_after(model, "legalize", Options())
    except UnsupportedError as error:
        op = error.op if error.version is None else f"{error.op}-{error.version}"
        return (Unsupported(op or "graph", 1, error.message),)
    except OnnxtflError:  # of an option that the conversion needs
        return ()
    return ()


def _add_types(read: Graph, lifted: Graph) -> None:
    """Set the types of results of `read` that are those of tensors in `lifted`."""
    types: dict[str, Type] = {}
    for node in lifted.nodes:
        for value in filter(None, (*node.operands, *node.results)):
            origin = value.origin
            if value.type is not None and origin is not None and origin.permutation is None and origin.shape is None:
                types.setdefault(origin.tensor, value.type)
    for node in read.nodes:
        for value in node.results:
            if value.type is None:
                value.type = types.get(value.name or "")


def _reason(node: Node) -> str:
    """Return why a node is not converted; "" if it only depends on another such node."""
    known = all(value is None or value.type is not None for value in node.operands)
    try:
        if node.graph is not None:
            lift_node(node.graph, node, body)
    except UnsupportedError as error:
        return error.message if known or error.code == "E-OP-002" else ""
    except Exception:  # an operand whose type is unknown because of another op
        return ""
    return ""


def _graph_json(graph: Graph) -> dict[str, Any]:
    return {
        "name": graph.name,
        "inputs": [_value_json(value) for value in graph.inputs],
        "outputs": graph.names_of_outputs,
        "nodes": [_node_json(node) for node in graph.nodes],
    }


def _value_json(value: Value | None) -> Any:
    if value is None:
        return None
    found: dict[str, Any] = {"name": value.name or "", "type": str(value.type)}
    if value.data is not None and value.data.size <= SHORT:
        found["value"] = [element_text(e, value.data.dtype) for e in value.data.numpy().reshape(-1).tolist()]
    return found


def _node_json(node: Node) -> dict[str, Any]:
    return {
        "name": node.name or "",
        "op": op_name(node),
        "version": node.op.version,
        "inputs": [_value_json(value) for value in node.operands],
        "outputs": [_value_json(value) for value in node.results],
        "attributes": {key: _attribute_json(value) for key, value in sorted(node.attributes.items())},
    }


def _attribute_json(value: Any) -> Any:
    if isinstance(value, Graph):
        return _graph_json(value)
    if isinstance(value, list | tuple):
        return [_attribute_json(one) for one in value]
    if isinstance(value, bool | int | str | None):
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else str(value)
    return f"tensor {value.dtype.value} {list(value.shape)}" if isinstance(value, TensorData) else str(value)
