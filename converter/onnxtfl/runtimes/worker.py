"""The child process in which models run: a script that needs NumPy and one runtime, whose crash does not end the
parent.

Its arguments are the runtime to import, the prefix of each answer (other printed text is ignored then), and the
directories in which its parent has temporary folders: if its parent is killed, it removes these and ends. It reads
requests from stdin and answers on stdout, one JSON object a line; arrays travel in npz files. It imports nothing of
onnxtfl but the scripts `temporary` and `platform_calls`, and runs on Python 3.9 and newer, so that another interpreter
can run it too (tflite-runtime 2.14 wants numpy < 2 and Python 3.11).

Request: ``{"id", "runtime", "model", "arrays": npz, "runs": [[item]], "feedback": [[output, input]], "results": npz,
"kernels", "spare", "keep", "large", "source", "time_limit"}``: the inputs of each run of one session or interpreter,
which keeps its state from run to run; an input in "feedback" gets the value of its output in the previous run. The runs
after the first are skipped if that took more than "spare" seconds, unless "spare" is 0. With ``"load": true`` the model
is only loaded, for a later request; with ``"keep": true`` it stays loaded. With ``"arena": size`` (0: large enough) the
answer's "arena" is the number of bytes in use in an arena of TFLite Micro of that size. With a "plan", the model
decodes tokens (see `generation_script`): the answer's "tokens", and "logits" in the results. With "texts", LiteRT-LM's
engine answers (see `engine_script`). With "source", ONNX Runtime multiplies real values by int8 weights as they are: by
default it rounds them to int8. The process ends if a request takes `LATE` seconds longer than its limit: its parent
would have killed it before.
Answer: ``{"id", "outputs": [[item]], "seconds"}`` or ``{"id", "error", "kind"}``. Item: see `encode`.
"""

# ruff: noqa: B905 (zip has no "strict" on Python 3.9)
from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

# "onnxtfl/runtimes" must not be on the path of the script, or its modules would hide others of the same name.
if __name__ == "__main__" and sys.path and os.path.abspath(sys.path[0]) == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]

import numpy as np

Item = dict[str, Any]
LATE, LONGEST = 10.0, 1e6
"""Seconds until a process ends itself that its parent should have ended, and the longest time limit for that."""

# TensorProto.DataType of the types that NumPy lacks, and the NumPy type of the same width that carries them.
RAW_TYPES: dict[str, tuple[int, str]] = {
    "bfloat16": (16, "uint16"),
    "float8e4m3fn": (17, "uint8"),
    "float8e4m3fnuz": (18, "uint8"),
    "float8e5m2": (19, "uint8"),
    "float8e5m2fnuz": (20, "uint8"),
    "float8e8m0": (24, "uint8"),
}


class WorkerError(Exception):
    """A run that failed; ``kind`` is one of unavailable, unsupported, load, run."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def encode(value: Any, store: dict[str, Any]) -> Item:
    """Return the JSON item for ``value`` (array, list of values, None); numeric arrays go into ``store``.

    Strings are in the item itself: npy files either pickle them or lose trailing NULs.
    """
    if value is None:
        return {"kind": "none"}
    if isinstance(value, dict):  # a map: its values, sorted by key
        value = np.asarray([value[key] for key in sorted(value)])
    if isinstance(value, list):
        return {"kind": "list", "items": [encode(item, store) for item in value]}
    array = np.asarray(value)
    if array.dtype.kind in "OSU":
        return {"kind": "strings", "shape": list(array.shape), "values": [as_text(v) for v in array.reshape(-1)]}
    key = f"a{len(store)}"
    name = array.dtype.name
    if name in ("int4", "uint4"):  # the runtimes that have inputs of 4 bits read one from each byte
        array = array.astype("int8" if name == "int4" else "uint8")
    if array.dtype.kind == "V" or name.startswith(("bfloat", "float8")):
        store[key] = array.view(f"uint{8 * array.dtype.itemsize}")
        return {"kind": "array", "key": key, "dtype": name.replace("_", "")}
    store[key] = array
    return {"kind": "array", "key": key}


def decode(item: Item, store: Any) -> Any:
    """Return the value of ``item``; raw types are returned as their bits (uint16 or uint8)."""
    kind = item["kind"]
    if kind == "list":
        return [decode(part, store) for part in item["items"]]
    if kind == "strings":
        array = np.empty(len(item["values"]), dtype=object)
        array[:] = item["values"]
        return array.reshape(item["shape"])
    return store[item["key"]] if kind == "array" else None


def as_text(value: Any) -> str:
    """Return a string element as ``str``; bytes that are not UTF-8 are kept as surrogates."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def run(request: Item) -> Item:
    """Run one request and return its answer; raises `WorkerError`."""
    if request.get("load"):
        load(request)
        return {}
    if "arena" in request:
        return {"arena": script("micro_script").arena(request["model"], request["arena"])}
    if "plan" in request:
        return generate(request)
    if "texts" in request:
        return dict(script("engine_script").texts(load_runtime("litert_lm"), request["model"], request["texts"]))
    store = np.load(request["arrays"], allow_pickle=False) if any(request["runs"]) else {}
    runs = [[decode(item, store) for item in inputs] for inputs in request["runs"]]
    runner = RUNNERS.get(request["runtime"], run_tflite)
    started = time.perf_counter()
    _, before = LOADED.get(file_key(request), (None, 0.0))
    outputs = runner(request, runs)
    seconds = before + time.perf_counter() - started
    results: dict[str, Any] = {}
    items = [[encode(value, results) | ({"raw": raw} if raw else {}) for value, raw in one] for one in outputs]
    np.savez(request["results"], **results)
    return {"outputs": items, "seconds": seconds}


def generate(request: Item) -> Item:
    """Decode tokens as the request's plan says; the models stay loaded."""
    module, plan, is_onnx = script("generation_script"), request["plan"], request["runtime"] == "onnxruntime"
    files = plan.get("files") or {"": request["model"]}
    requests = {role: {**request, "model": path} for role, path in files.items()}
    models = {role: opened(each, is_onnx) for role, each in requests.items()}
    embedder = opened({**request, "model": plan["embedder"]}, False) if plan.get("embedder") else None
    try:
        if is_onnx:
            try:
                tokens, logits = module.decode_onnx(models, plan)
            except Exception as error:
                if OTHER_SIZES not in str(error):
                    raise
                models = {role: opened(each, True, reuses=False) for role, each in requests.items()}
                tokens, logits = module.decode_onnx(models, plan)
        else:
            tokens, logits = module.decode_tflite(models[""], plan, embedder)
    except Exception as error:
        kind = onnx_error_kind(error, "run") if is_onnx else tflite_error_kind(error, "run")
        raise WorkerError(kind, str(error)) from error
    np.savez(request["results"], logits=logits)
    return {"tokens": tokens}


OTHER_SIZES = "attempting to re-use buffer"
"""ONNX Runtime's error where a model declares the sizes of inner tensors wrong, as the masks of some decoders."""


def opened(request: Item, is_onnx: bool, reuses: bool = True) -> Any:
    """The session or interpreter of a model, which stays loaded; `reuses`: as for `new_session`."""
    key = file_key(request)
    loaded = LOADED.pop(key, (None,))[0] if reuses else None
    if loaded is None:
        loaded = new_session(load_runtime("onnxruntime"), request, reuses) if is_onnx else open_interpreter(request)
    LOADED[key] = loaded, 0.0
    return loaded


def load(request: Item) -> None:
    """Load a model for a later request, which will report any error again."""
    if request["runtime"] in ("micro", "gpu", "reference", "neutral"):  # these load fast, or not before they run
        return
    started = time.perf_counter()
    if request["runtime"] == "onnxruntime":
        loaded = new_session(load_runtime("onnxruntime"), request)
    else:
        loaded = open_interpreter(request)
        if all(-1 not in slot.get("shape_signature", ()) for slot in loaded.get_input_details()):
            try:
                allocate_tensors(loaded)
            except (ValueError, RuntimeError) as error:
                raise WorkerError(tflite_error_kind(error, "load"), str(error)) from error
    LOADED[file_key(request)] = loaded, time.perf_counter() - started


LOADED: dict[tuple[Any, ...], tuple[Any, float]] = {}
"""Sessions and interpreters that were loaded for a later request, by file and kernel set; the seconds that took."""
MOST = 3
"""The number of ONNX Runtime sessions that stay open (those of small models always do)."""


def file_key(request: Item) -> tuple[Any, ...]:
    """Return a key that identifies a file and kernel set."""
    with contextlib.suppress(OSError):  # loading reports the error
        file = os.stat(request["model"])
        return request["model"], request["kernels"], file.st_mtime_ns, file.st_size
    return request["model"], request["kernels"]


def enough(request: Item, found: list[Any], started: float) -> bool:
    """Return whether the other runs are skipped, since the first one took too long."""
    return bool(request["spare"]) and len(found) == 1 and time.perf_counter() - started > request["spare"]


def run_onnx(request: Item, runs: list[list[Any]]) -> list[list[tuple[Any, str]]]:
    """Run the model in ONNX Runtime; returns (value, name of its raw type or "") for each output of each run.

    For every kernel set except "default", graph optimizations are off.
    """
    ort, key = load_runtime("onnxruntime"), file_key(request)
    session = LOADED.pop(key, (None,))[0] or new_session(ort, request)
    if request["keep"] or not request.get("large"):  # it has no state
        LOADED[key] = session, 0.0
        while len(LOADED) > MOST:
            del LOADED[next(iter(LOADED))]
    return each_run(request, runs, lambda inputs: run_session(ort, session, inputs))


def each_run(
    request: Item, runs: list[list[Any]], once: Callable[[list[Any]], list[tuple[Any, str]]]
) -> list[list[tuple[Any, str]]]:
    """Return the results of ``once`` for the inputs of each run, including fed-back states."""
    found: list[list[tuple[Any, str]]] = []
    started = time.perf_counter()
    for inputs in runs:
        if enough(request, found, started):
            break
        feed_back(request, found, inputs)
        found.append(once(inputs))
    return found


def feed_back(request: Item, found: list[list[tuple[Any, str]]], inputs: list[Any]) -> None:
    """Replace inputs by outputs of the run before."""
    for source, target in request["feedback"] if found else ():
        inputs[target] = found[-1][source][0]


def run_session(ort: Any, session: Any, inputs: list[Any]) -> list[tuple[Any, str]]:
    """Run a session once."""
    slots = session.get_inputs()
    if len(slots) != len(inputs):
        raise WorkerError("run", f"the model has {len(slots)} inputs, {len(inputs)} were given")
    raw_in = [raw_type(slot.type) for slot in slots]
    raw_out = [raw_type(slot.type) for slot in session.get_outputs()]
    try:
        if not any(raw_in) and not any(raw_out):
            values = session.run(None, {slot.name: value for slot, value in zip(slots, inputs)})
            return [(value, "") for value in values]
        feeds = {s.name: ort_value(ort, v, raw) for s, v, raw in zip(slots, inputs, raw_in)}
        return [(ort_bits(v, raw), raw) for v, raw in zip(session.run_with_ort_values(None, feeds), raw_out)]
    except Exception as error:
        raise WorkerError(onnx_error_kind(error, "run"), str(error)) from error


def new_session(ort: Any, request: Item, reuses: bool = True) -> Any:
    """Load the model. Weights of a large one are not packed for faster runs, since it runs only a few times.

    `reuses`: whether results may be stored in place of earlier ones of the same declared size.
    """
    options = ort.SessionOptions()
    options.enable_mem_reuse = reuses
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if request["kernels"] != "default":
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if request.get("large"):
        options.add_session_config_entry("session.disable_prepacking", "1")
    if request.get("source"):
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    try:
        return ort.InferenceSession(utf8_path(request["model"]), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise WorkerError(onnx_error_kind(error, "load"), str(error)) from error


def onnx_error_kind(error: Exception, otherwise: str) -> str:
    """Return "unsupported" if ONNX Runtime reports a valid model that it cannot run, else ``otherwise``."""
    text = str(error)
    beyond = (
        "under development",
        "Unsupported model IR version",
        "is not a registered function/op",
        "No Op registered",
    )
    return "unsupported" if type(error).__name__ == "NotImplemented" or any(b in text for b in beyond) else otherwise


def raw_type(ort_type: str) -> str:
    """Return the name of a tensor type that NumPy lacks ("tensor(bfloat16)" -> "bfloat16"), else ""."""
    name = ort_type[7:-1] if ort_type.startswith("tensor(") else ""
    return name if name in RAW_TYPES else ""


def ort_value(ort: Any, value: Any, raw: str) -> Any:
    """Return ``value`` as an OrtValue."""
    if raw:
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.asarray(value, order="C"), RAW_TYPES[raw][0])
    return ort.OrtValue.ortvalue_from_numpy(value)


def ort_bits(value: Any, raw: str) -> Any:
    """Return an OrtValue as an array, a raw type as its bits (``OrtValue.numpy`` refuses bfloat16)."""
    if not raw:
        return value.numpy()
    data = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(data, dtype=RAW_TYPES[raw][1]).reshape(value.shape())


def run_tflite(request: Item, runs: list[list[Any]]) -> list[list[tuple[Any, str]]]:
    """Run the main subgraph in LiteRT or tflite-runtime, inputs and outputs in its own order."""
    interpreter = LOADED.pop(file_key(request), (None,))[0] or open_interpreter(request)
    try:
        allocate(interpreter, runs[0])
        found = each_run(request, runs, lambda inputs: invoke(interpreter, inputs))
    except (ValueError, RuntimeError) as error:
        raise WorkerError(tflite_error_kind(error, "run"), str(error)) from error
    if request["keep"]:
        LOADED[file_key(request)] = interpreter, 0.0
    return found


def invoke(interpreter: Any, inputs: list[Any]) -> list[tuple[Any, str]]:
    """Run an interpreter once."""
    for slot, value in zip(interpreter.get_input_details(), inputs):
        if value.size:  # an empty tensor has no memory to copy to
            interpreter.set_tensor(slot["index"], tflite_input(value))
    interpreter.invoke()
    return [(tflite_output(interpreter, slot), "") for slot in interpreter.get_output_details()]


def allocate(interpreter: Any, inputs: list[Any]) -> None:
    """Allocate the tensors for the shapes of `inputs`."""
    slots = interpreter.get_input_details()
    if len(slots) != len(inputs):
        raise ValueError(f"the model has {len(slots)} inputs, {len(inputs)} were given")
    for slot, value in zip(slots, inputs):
        if list(slot["shape"]) != list(value.shape):
            interpreter.resize_tensor_input(slot["index"], list(value.shape))
    allocate_tensors(interpreter)


def allocate_tensors(interpreter: Any) -> None:
    """Allocate the tensors. Raises `WorkerError` with the size of the largest one if there is no memory for them:
    LiteRT's own error is empty then.
    """
    try:
        interpreter.allocate_tensors()
    except RuntimeError as error:
        if str(error):
            raise
        sizes = {
            t["name"]: math.prod(map(int, t["shape"])) * np.dtype(t["dtype"]).itemsize for t in tensors(interpreter)
        }
        name = max(sizes, key=sizes.__getitem__, default="")
        raise WorkerError(
            "memory", f"out of memory: the tensor {name!r} alone needs {sizes.get(name, 0)} bytes"
        ) from error


def tensors(interpreter: Any) -> list[Any]:
    """Return the details of the tensors with element types of fixed size."""
    return [t for t in interpreter.get_tensor_details() if t["dtype"] not in (np.object_, np.bytes_, np.str_)]


def tflite_output(interpreter: Any, slot: Any) -> Any:
    """Return the array of an output; an empty one has no memory to read, which ``get_tensor`` refuses."""
    shape = [int(size) for size in slot["shape"]]
    return np.zeros(shape, slot["dtype"]) if 0 in shape else interpreter.get_tensor(slot["index"])


def open_interpreter(request: Item) -> Any:
    """Return an interpreter with the requested kernel set: default (XNNPACK), builtin or reference."""
    module = load_runtime(
        "ai_edge_litert.interpreter" if request["runtime"] == "litert" else "tflite_runtime.interpreter"
    )
    resolver = {
        "default": module.OpResolverType.AUTO,
        "builtin": module.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        "reference": module.OpResolverType.BUILTIN_REF,
    }[request["kernels"]]
    try:
        return module.Interpreter(
            model_path=utf8_path(request["model"]), num_threads=1, experimental_op_resolver_type=resolver
        )
    except (ValueError, RuntimeError) as error:
        raise WorkerError(tflite_error_kind(error, "load"), str(error)) from error


def tflite_error_kind(error: Exception, otherwise: str) -> str:
    """Return "unsupported" for a custom op that the interpreter does not know, else ``otherwise``."""
    return "unsupported" if "unresolved custom op" in str(error) else otherwise


def tflite_input(value: Any) -> Any:
    """Return ``value`` as ``set_tensor`` requires it: strings as bytes.

    Of an object array of rank 0, LiteRT reads the bytes of the pointer.
    """
    if value.dtype.kind != "O":
        return np.asarray(value, order="C")
    array = np.empty(value.size, dtype=object)
    array[:] = [as_text(v).encode("utf-8", "surrogateescape") for v in value.reshape(-1)]
    return array.reshape(value.shape) if value.ndim else np.array(array[0])


def run_micro(request: Item, runs: list[list[Any]]) -> list[list[tuple[Any, str]]]:
    """Run the main subgraph in TFLite Micro."""
    interpreter = script("micro_script").Interpreter(request["model"])

    def once(inputs: list[Any]) -> list[tuple[Any, str]]:
        return [(value, "") for value in interpreter.run([tflite_input(value) for value in inputs])]

    return each_run(request, runs, once)


def run_gpu(request: Item, runs: list[list[Any]]) -> list[list[tuple[Any, str]]]:
    """Run the first signature on LiteRT's GPU accelerator alone."""
    model = script("gpu_script").Model(request["model"])
    return each_run(request, runs, lambda inputs: [(value, "") for value in model.run(inputs)])


def run_reference(request: Item, runs: list[list[Any]]) -> list[list[tuple[Any, str]]]:
    """Run the model in onnx.reference."""
    return [[(value, "") for value in outputs] for outputs in script("reference_script").run(request["model"], runs)]


def run_neutral(request: Item, runs: list[list[Any]]) -> list[list[tuple[Any, str]]]:
    """Evaluate the model by the neutral ops; runs of one request keep its state."""
    try:
        evaluator = script("../evaluation").Evaluator(request["model"])
    except Exception as error:
        kind = "unsupported" if type(error).__name__ == "UnsupportedError" else "load"
        raise WorkerError(kind, str(error)) from error
    return each_run(
        request, runs, lambda inputs: [(v, "") for v in evaluator.run(inputs, time_limit=request["time_limit"])]
    )


def utf8_path(path: str) -> str:
    """Return a path for a runtime, which encodes it as UTF-8, also where the encoding of file names is ASCII."""
    return os.fsencode(path).decode("utf-8", "surrogateescape")


def script(name: str) -> Any:
    """Return the module in the file of this name, relative to the folder of this one, which is not on the path."""
    import importlib.util

    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".py")
    spec = importlib.util.spec_from_file_location("onnxtfl_" + os.path.basename(name), path)
    if spec is None or spec.loader is None:
        raise WorkerError("unavailable", "cannot load " + path)
    if spec.name not in sys.modules:
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    return sys.modules[spec.name]


RUNNERS = {
    "onnxruntime": run_onnx,
    "micro": run_micro,
    "gpu": run_gpu,
    "reference": run_reference,
    "neutral": run_neutral,
}
IMPORTS = {
    "onnxruntime": "onnxruntime",
    "litert": "ai_edge_litert.interpreter",
    "tflite_runtime": "tflite_runtime.interpreter",
    "micro": "tflite_micro.python.tflite_micro.runtime",
    "gpu": "ai_edge_litert.compiled_model",
    "reference": "onnx.reference",
    "neutral": "onnxtfl.evaluation",
}
"""By runtime: the function that runs a model, and the imports before the first request."""


def load_runtime(module: str) -> Any:
    """Import the runtime."""
    try:
        return __import__(module, fromlist=["_"])
    except (ImportError, OSError) as error:
        raise WorkerError("unavailable", f"{module.partition('.')[0]} cannot be imported: {error}") from error


def answer(line: str) -> Item:
    """Return the answer to one request, an error for any exception."""
    request: Item = {}
    try:
        request = json.loads(line)
        with limited(request):
            found = run(request)
    except WorkerError as error:
        found = {"error": str(error), "kind": error.kind}
    except MemoryError:
        found = {"error": "out of memory", "kind": "memory"}
    except Exception as error:
        kind = getattr(error, "kind", "")
        found = {"error": str(error) if kind else f"{type(error).__name__}: {error}", "kind": kind or "run"}
    return {"id": request.get("id"), **found}


@contextlib.contextmanager
def limited(request: Item) -> Iterator[None]:
    """Exit if a request takes too long, even in a runtime that blocks all Python threads."""
    limit = request["time_limit"] + LATE
    if limit < LONGEST:
        faulthandler.dump_traceback_later(limit, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def main() -> None:
    """Answer requests until stdin ends. What the runtimes print on stdout goes to stderr."""
    parent = script("../platform_calls").parent()
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    runtime, mark, *places = sys.argv[1:]
    with contextlib.suppress(WorkerError):  # while the parent still prepares its inputs
        load_runtime(IMPORTS.get(runtime, "numpy"))
    watch = script("../temporary").end_with_parent(places, parent)
    for line in sys.stdin:
        if line.strip():
            channel.write(mark + json.dumps(answer(line)) + "\n")
            channel.flush()
    if watch is not None:
        watch.join(1)  # stdin ends where the parent is killed, which the thread sees soon


if __name__ == "__main__":
    main()
