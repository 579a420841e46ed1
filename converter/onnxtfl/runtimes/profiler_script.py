"""The child process in which a runtime measures the time of each op: a script, whose crash does not end the parent.

It imports nothing of onnxtfl but the script `worker` next to it. Its argument is a JSON object
``{"runtime", "model", "arrays": npz, "items": [item], "places": [directory], "ops": bool}``; the inputs are items of
`worker.encode`; "places" as for `worker`. It prints lines of `MARK` and
``{"ops": [[name, op, milliseconds]], "milliseconds", "note", "delegate", "delegated", "total", "replaced"}``, or
``{"error"}``; the last line counts. An earlier line has the results before the call of LiteRT's profiler, which may
crash.

ONNX Runtime writes a profile itself. The Python package of LiteRT has no profiler; the C library in it has one, whose
functions are called here. Its structures are those of LiteRT 2: for other versions, and if the measured times are
impossible, no times are reported.
"""

# ruff: noqa: B905 (zip has no "strict" on Python 3.9)
from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

if __name__ == "__main__" and sys.path and os.path.abspath(sys.path[0]) == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]

import numpy as np

MARK = "onnxtfl-profile "
RUNS = 20
SECONDS = 0.5
"""The number of runs that are measured, fewer where these take longer."""
OPERATOR, DELEGATED = 2, 8
"""Kinds of events: an op of the interpreter, a kernel of a delegate (litert_profiler_event.h)."""
Timed = tuple[str, str, float]


def _load_worker() -> Any:
    spec = importlib.util.spec_from_file_location("worker", os.path.join(os.path.dirname(__file__), "worker.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def repeated(run: Callable[[], Any]) -> tuple[int, float]:
    """Run once to warm up, then several times. Returns the number of runs, and the smallest time in milliseconds."""
    run()
    times: list[float] = []
    started = time.perf_counter()
    while len(times) < RUNS and (not times or time.perf_counter() - started < SECONDS):
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return len(times), 1000 * min(times)


def profile_onnx(model: str, inputs: list[Any], folder: str) -> dict[str, Any]:
    """The profile of ONNX Runtime, on one thread, with its graph optimizations; fused ops have their own names.

    `folder`: where ONNX Runtime may write.
    """
    import onnxruntime as ort

    def session(folder: str | None) -> tuple[Any, Callable[[], Any]]:
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        if folder is not None:
            options.enable_profiling, options.profile_file_prefix = True, os.path.join(folder, "profile")
        made = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        feeds = {slot.name: value for slot, value in zip(made.get_inputs(), inputs)}
        return made, lambda: made.run(None, feeds)

    runs, milliseconds = repeated(session(None)[1])
    measured, run = session(folder)
    for _ in range(runs + 1):
        run()
    with open(measured.end_profiling(), encoding="utf-8", errors="replace") as file:
        events = json.load(file)
    return {"ops": onnx_times(events), "milliseconds": milliseconds}


def onnx_times(events: list[dict[str, Any]]) -> list[Timed]:
    """Name, op and mean milliseconds of each node, without the first run; nodes of regions count for their op."""
    found: dict[str, tuple[str, list[float]]] = {}
    nodes = [event for event in events if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")]
    for event in nodes:
        name = event["name"][: -len("_kernel_time")]
        found.setdefault(name, (event["args"].get("op_name", "?"), []))[1].append(event["dur"] / 1000)
    return [(name, op, sum(times[1:]) / max(1, len(times) - 1)) for name, (op, times) in found.items()]


def profile_tflite(
    runtime: str, model: str, inputs: list[Any], tell: Callable[[Any], None], ops: bool = True
) -> dict[str, Any]:
    """The ops of a delegate, the time of one run, and with `ops` the time of each op if the package has a profiler.

    `tell`: called with what is known before the times of ops are measured.
    """
    module = __import__(f"{'ai_edge_litert' if runtime == 'litert' else 'tflite_runtime'}.interpreter", fromlist=["_"])
    interpreter = module.Interpreter(model_path=model, num_threads=1)
    slots = interpreter.get_input_details()
    for slot, value in zip(slots, inputs):
        if list(slot["shape"]) != list(value.shape):
            interpreter.resize_tensor_input(slot["index"], list(value.shape))
    try:
        interpreter.allocate_tensors()
        for slot, value in zip(slots, inputs):
            if value.size:
                interpreter.set_tensor(slot["index"], value)
        milliseconds = repeated(interpreter.invoke)[1]
    except RuntimeError as error:  # of sizes or values that the model does not take: the delegate has its ops before
        found = delegation(interpreter._get_ops_details())
        if not found["delegated"]:
            raise
        return {**found, "note": str(error)}
    found = {**delegation(interpreter._get_ops_details()), "milliseconds": milliseconds}
    if not ops:
        return found
    tell({**found, "note": "LiteRT's profiler crashes on this model"})
    try:
        if runtime != "litert":
            raise OSError("tflite-runtime has no profiler in its Python package")
        fed = {slot["name"]: value for slot, value in zip(slots, inputs)}
        got = {slot["name"]: interpreter.get_tensor(slot["index"]) for slot in interpreter.get_output_details()}
        found["ops"] = LiteRt(model).times(fed, got)
    except (OSError, RuntimeError, AttributeError, ValueError, KeyError) as error:
        found["note"] = str(error)
    return found


def delegation(nodes: list[dict[str, Any]]) -> dict[str, Any]:
    """Which ops of the main subgraph a delegate replaces, how many, and in how many partitions.

    They are those between the inputs and the outputs of its own ops, in the order of the partitions.
    """
    producers = {int(t): node for node in nodes if node["op_name"] != "DELEGATE" for t in node["outputs"]}
    replaced: set[int] = set()
    delegates = [node for node in nodes if node["op_name"] == "DELEGATE"]
    ordered: list[int] = []
    for node in delegates:
        before = set(replaced)
        stop, work = {int(t) for t in node["inputs"]}, [int(t) for t in node["outputs"]]
        while work:
            tensor = work.pop()
            producer = producers.get(tensor)
            if tensor not in stop and producer is not None and producer["index"] not in replaced:
                replaced.add(producer["index"])
                work += [int(t) for t in producer["inputs"]]
        ordered += sorted(int(index) for index in replaced - before)
    name = "XNNPACK" if delegates else ""
    counts = {"delegated": len(replaced), "total": len(nodes) - len(delegates), "partitions": len(delegates)}
    return {"delegate": name, **counts, "replaced": ordered}


class Layout(ctypes.Structure):
    """LiteRtLayout."""

    _fields_ = [
        ("rank", ctypes.c_uint, 7),
        ("has_strides", ctypes.c_uint, 1),
        ("dimensions", ctypes.c_int32 * 8),
        ("strides", ctypes.c_uint32 * 8),
    ]


class TensorType(ctypes.Structure):
    """LiteRtRankedTensorType."""

    _fields_ = [("element", ctypes.c_int), ("layout", Layout)]


class Event(ctypes.Structure):
    """ProfiledEventData."""

    _fields_ = [
        ("tag", ctypes.c_char_p),
        ("kind", ctypes.c_int),
        ("start", ctypes.c_uint64),
        ("elapsed", ctypes.c_uint64),
        ("memory", ctypes.c_size_t * 6),
        ("metadata", ctypes.c_uint64 * 2),
        ("source", ctypes.c_int),
    ]


class LiteRt:
    """A model in LiteRT's C library, with profiling. Raises OSError and RuntimeError if that is impossible."""

    def __init__(self, model: str) -> None:
        from importlib import metadata

        import ai_edge_litert

        if metadata.version("ai-edge-litert").split(".")[0] != "2":
            raise OSError("the profiler of this version of LiteRT is not known")
        self.library = ctypes.CDLL(os.path.join(os.path.dirname(ai_edge_litert.__file__), "libLiteRt.so"))
        self._kept: list[Any] = []
        self.environment = self.made("CreateEnvironment", 0, None)
        self.model = self.made("CreateModelFromFile", self.environment, model.encode())
        options = self.made("CreateOptions")
        self.call("SetOptionsHardwareAccelerators", options, 1)
        self.add(options, b"runtime_options_string", b"enable_profiling = true\n")
        self.add(options, b"xnnpack", b"num_threads = 1\n")
        self.compiled = self.made("CreateCompiledModel", self.environment, self.model, options)
        self.profiler = self.made("CompiledModelGetProfiler", self.compiled)
        self.signature = self.made("GetModelSignature", self.model, ctypes.c_size_t(0))

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the library; RuntimeError where it returns an error."""
        if getattr(self.library, f"LiteRt{name}")(*arguments):
            raise RuntimeError(f"LiteRT cannot profile this model ({name})")

    def made(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        """Call a function whose last argument is the address for an object that it creates."""
        made = ctypes.c_void_p()
        self.call(name, *arguments, ctypes.byref(made))
        return made

    def add(self, options: ctypes.c_void_p, identifier: bytes, text: bytes) -> None:
        """Add settings to the options."""
        payload, keep = ctypes.create_string_buffer(text), ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda pointer: None)
        self._kept += [payload, keep]
        self.call("AddOpaqueOptions", options, self.made("CreateOpaqueOptions", identifier, payload, keep))

    def times(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> list[Timed]:
        """The mean milliseconds of each op, in the order in which they run."""
        fed, got = self.inputs(inputs), self.outputs(outputs)
        index = ctypes.c_size_t(0)

        def run() -> None:
            sizes = ctypes.c_size_t(len(fed)), ctypes.c_size_t(len(got))
            self.call("RunCompiledModel", self.compiled, index, sizes[0], fed, sizes[1], got)

        runs, _ = repeated(run)
        total: list[Timed] = []
        seconds = 0.0
        for _ in range(runs):
            self.call("ResetProfiler", self.profiler)
            self.call("StartProfiler", self.profiler)
            started = time.perf_counter()
            run()
            seconds += time.perf_counter() - started
            self.call("StopProfiler", self.profiler)
            one = self.events()
            total = [(*a[:2], a[2] + b[2]) for a, b in zip(total, one)] if total else one
        if sum(entry[2] for entry in total) > 1000 * seconds + runs:  # structures of another version
            raise RuntimeError("the times of this version of LiteRT cannot be read")
        return [(name, op, spent / runs) for name, op, spent in total]

    def events(self) -> list[Timed]:
        """The ops of the main subgraph and the kernels of delegates that ran since the start."""
        count = ctypes.c_int()
        self.call("GetNumProfilerEvents", self.profiler, ctypes.byref(count))
        events = (Event * count.value)()
        self.call("GetProfilerEvents", self.profiler, count.value, events)
        found = [e for e in events if e.kind in (OPERATOR, DELEGATED) and not e.metadata[1]]
        if any(e.kind == DELEGATED for e in found):
            found = [e for e in found if e.kind == DELEGATED or b"Delegate" not in e.tag]
        names = [(e.tag or b"?").decode("utf-8", "replace") for e in found]
        delegate = ["XNNPACK " if e.kind == DELEGATED else "" for e in found]
        return [
            (f"{by}{name} {e.metadata[0]}", f"{by}{name}", e.elapsed / 1000)
            for by, name, e in zip(delegate, names, found)
        ]

    def count(self, kind: str) -> int:
        """The number of inputs or outputs ("Input", "Output")."""
        number = ctypes.c_size_t()
        self.call(f"GetNumSignature{kind}s", self.signature, ctypes.byref(number))
        return number.value

    def buffer(self, kind: str, i: int, type_: TensorType) -> ctypes.c_void_p:
        """A buffer for an input or output."""
        needs = self.made(
            f"GetCompiledModel{kind}BufferRequirements", self.compiled, ctypes.c_size_t(0), ctypes.c_size_t(i)
        )
        return self.made("CreateManagedTensorBufferFromRequirements", self.environment, ctypes.byref(type_), needs)

    def tensor(self, kind: str, i: int) -> tuple[str, TensorType]:
        """The name and type of an input or output."""
        tensor = self.made(f"GetSignature{kind}TensorByIndex", self.signature, ctypes.c_size_t(i))
        name, type_ = ctypes.c_char_p(), TensorType()
        self.call("GetTensorName", tensor, ctypes.byref(name))
        self.call("GetRankedTensorType", tensor, ctypes.byref(type_))
        return (name.value or b"").decode("utf-8", "replace"), type_

    def inputs(self, values: dict[str, Any]) -> Any:
        """Buffers with the values, of which the model gets the shapes."""
        buffers = []
        for i in range(self.count("Input")):
            name, type_ = self.tensor("Input", i)
            if name not in values or values[name].dtype.kind == "O":
                raise OSError("LiteRT's profiler is not used for inputs of this kind")
            value, zero = np.ascontiguousarray(values[name]), ctypes.c_size_t(0)
            sizes = (ctypes.c_int * value.ndim)(*value.shape)
            if list(type_.layout.dimensions)[: type_.layout.rank] != list(value.shape):
                number = ctypes.c_size_t(i), sizes, ctypes.c_size_t(value.ndim)
                self.call("CompiledModelResizeInputTensorNonStrict", self.compiled, zero, *number)
                type_.layout.rank = value.ndim
                type_.layout.dimensions[: value.ndim] = value.shape
            buffer = self.buffer("Input", i, type_)
            address = ctypes.c_void_p()
            self.call("LockTensorBuffer", buffer, ctypes.byref(address), 1)
            ctypes.memmove(address, value.ctypes.data, value.nbytes)
            self.call("UnlockTensorBuffer", buffer)
            buffers.append(buffer)
        return (ctypes.c_void_p * len(buffers))(*buffers)

    def outputs(self, values: dict[str, Any]) -> Any:
        """Buffers for the outputs, in the shapes of the `values` that the interpreter computed."""
        buffers = []
        for i in range(self.count("Output")):
            name, type_ = self.tensor("Output", i)
            value = values[name]
            type_.layout.rank = value.ndim
            type_.layout.dimensions[: value.ndim] = value.shape
            size = ctypes.c_size_t(max(64, -(-value.nbytes // 64) * 64))
            buffers.append(self.made("CreateManagedTensorBuffer", self.environment, 1, ctypes.byref(type_), size))
        return (ctypes.c_void_p * len(buffers))(*buffers)


def main() -> None:
    """Answer the request; what the runtimes print on stdout goes to stderr."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(answer: dict[str, Any]) -> None:
        channel.write(MARK + json.dumps(answer) + "\n")
        channel.flush()

    request, worker = json.loads(sys.argv[1]), _load_worker()
    worker.script("../temporary").end_with_parent(request["places"])
    try:
        store = np.load(request["arrays"], allow_pickle=False)
        inputs = [worker.decode(item, store) for item in request["items"]]
        if request["runtime"] == "onnxruntime":
            answer = profile_onnx(request["model"], inputs, os.path.dirname(request["arrays"]))
        else:
            values = [worker.tflite_input(value) for value in inputs]
            answer = profile_tflite(request["runtime"], request["model"], values, tell, request["ops"])
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    tell(answer)
    os._exit(0)  # objects of LiteRT are not taken down one by one


if __name__ == "__main__":
    main()
