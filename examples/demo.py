"""Print the accuracy of the digits network in ONNX Runtime, and in LiteRT after its conversion.

onnx2tfl examples/digits.onnx -o build/digits.tflite
python examples/demo.py build/digits.tflite
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from ai_edge_litert.interpreter import Interpreter

Array = np.ndarray[Any, Any]
HERE = Path(__file__).resolve().parent


def in_onnxruntime(model: Path, images: Array) -> Array:
    """Probabilities of the ten digits for each image: [n, 1, 8, 8] -> [n, 10]."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (probability,) = session.run(["probability"], {"image": images})
    return np.asarray(probability)


def in_litert(model: Path, images: Array) -> Array:
    """Probabilities of the converted model; names and shapes of its input and output are those of the ONNX model."""
    interpreter = Interpreter(str(model))
    run = interpreter.get_signature_runner()
    return np.asarray(run(image=images)["probability"])


def main() -> int:
    """Return exit code 1 if the two runtimes classify an image differently."""
    test = np.load(HERE / "digits_test.npz")
    images = (test["pixels"][:, None] / 16).astype(np.float32)
    ours = in_litert(Path(sys.argv[1]), images)
    theirs = in_onnxruntime(HERE / "digits.onnx", images)
    for name, probability in (("ONNX Runtime", theirs), ("LiteRT", ours)):
        print(f"{name:12} test accuracy {(probability.argmax(1) == test['labels']).mean():.2%} of {len(images)} images")
    print(f"largest difference of a probability: {np.abs(ours - theirs).max():.1e}")
    return int(bool((ours.argmax(1) != theirs.argmax(1)).any()))


if __name__ == "__main__":
    sys.exit(main())
