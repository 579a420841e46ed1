"""Sound: windows, mel weights, and the custom ops of TFLite.

======  =====================================================================================================
ONNX    HannWindow HammingWindow BlackmanWindow 17, MelWeightMatrix 17
TFLite  AudioSpectrogram, Mfcc; sources: LiteRT kernels/internal/spectrogram.cc, mfcc.cc, mfcc_mel_filterbank.cc,
        mfcc_dct.cc
======  =====================================================================================================
"""

from __future__ import annotations

import math

import numpy as np
from onnxtfl.mappings.math.fourier_matrices import convolved_along, fourier, number, places

from onnxtfl.build.custom_options import custom_options
from onnxtfl.build.dtypes import dtype_from
from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import known_size
from onnxtfl.ir.formula import Term, real_type
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import iota, reshape, transposed, unsqueezed
from onnxtfl.ir.shapes import static_ints
from onnxtfl.ir.source_names import shown_name
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_onnx, lift_tfl

_FLOOR = 1e-12


@lift_tfl("custom:AudioSpectrogram")
def _audio_spectrogram(b: Builder, node: Node) -> Value:
    """Convert sound [samples, channels] to spectra [channels, frames, frequencies] of Hann windows by a convolution."""
    options, x = custom_options(node), node.operand(0)
    size, step = int(options.get("window_size") or 0), int(options.get("stride") or 0)
    if size < 2 or step < 1:
        raise ValueError(f"options {options}")
    length = 1 << (size - 1).bit_length()
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)
    taken, count = (Term(b, constant(np.asarray([n], np.int32))) for n in (size, length))
    matrix = fourier(taken, count, False, True, 1).value.numpy()[:, 0] * window[:, None, None]  # [size, lines, parts]
    sound = unsqueezed(b, transposed(b, x, (1, 0)), [2])
    frames = convolved_along(b, sound, constant(matrix.reshape(size, 1, -1).astype(np.float32)), step)
    parts = Term(b, reshape(b, frames, (*frames.shape[:2], length // 2 + 1, 2)))
    power = (parts * parts).reduce("sum", [3], keepdims=False)
    return (power if options.get("magnitude_squared") else power.sqrt()).value


@lift_tfl("custom:Mfcc")
def _mfcc(b: Builder, node: Node) -> Value:
    """Convert squared spectra [channels, frames, frequencies] to coefficients: mel bands, log, cosine transform."""
    options, spectra = custom_options(node), Term(b, node.operand(0))
    known = static_ints(node.operand(1))
    rate = known[0] if known else None
    bands, count = (int(options.get(name) or 0) for name in ("filterbank_channel_count", "dct_coefficient_count"))
    limits = [float(options.get(f"{name}_frequency_limit") or 0) for name in ("lower", "upper")]
    lines = spectra.value.shape[2]
    lines = known_size(lines, "the number of frequencies of an Mfcc")
    if not 0 < count <= bands or not 0 <= limits[0] < limits[1] or (rate is not None and rate <= 0) or lines < 2:
        raise ValueError(f"options {options} for {lines} frequencies at {rate} Hz")
    check_elements(bands * lines, "the matrix of the bands")
    angles = np.pi / bands * np.outer(np.arange(bands) + 0.5, np.arange(count))
    cosines = np.sqrt(2 / bands) * np.cos(angles)
    sampled = Term(b, node.operand(1))
    if rate is None:
        assume(f"the sample rate of {shown_name(node)} is above {2 * limits[1]:g} Hz")
        sampled = sampled.max(math.ceil(2 * limits[1]))  # a lower bound for the inputs that the check draws
    elif int(limits[1] / (0.5 * rate / (lines - 1))) >= lines:
        raise ValueError(f"bands up to {limits[1]:g} Hz of sound at {rate} Hz")
    matrix = _bands(sampled, bands, lines, *limits)
    energy = spectra.sqrt().dot(matrix, (2,), (0,))
    return energy.max(_FLOOR).log().dot(cosines.astype(np.float32), (2,), (0,)).value


def _bands(rate: Term, bands: int, lines: int, lower: float, upper: float) -> Value:
    """The weights [frequencies, bands] of triangles of equal width on the mel scale; frequency 0 has none.

    In float64 as the kernel: 1 - |mel - center| / distance.
    """
    low, high = (1127 * np.log1p(f / 700) for f in (lower, upper))
    distance = (high - low) / (bands + 1)
    line = Term(rate.b, constant(np.arange(lines, dtype=np.float64)[:, None]))
    centers = Term(rate.b, constant(low + distance * np.arange(1, bands + 1)))
    width = rate.to(DType.FLOAT64) * (0.5 / (lines - 1))
    first, last = ((limit / width + add).apply(ops.Floor) for limit, add in ((lower, 1.5), (upper, 0.0)))
    mel = (line * width / 700.0 + 1.0).log() * 1127.0
    weights = (1.0 - (mel - centers).abs() / distance).max(0.0)
    return ((line >= first) & (line <= last)).choose(weights, 0.0).to(DType.FLOAT32).value


# --- ONNX: windows, mel weights --------------------------------------------------------------------------------------


_WINDOWS = {"HannWindow": (0.5, 0.5), "HammingWindow": (25 / 46, 21 / 46), "BlackmanWindow": (0.42, 0.5, 0.08)}


@lift_onnx("HannWindow", since=(17,))
@lift_onnx("HammingWindow", since=(17,))
@lift_onnx("BlackmanWindow", since=(17,))
def _window(b: Builder, node: Node) -> Value:
    """Return a0 - a1 cos(2 pi n / N) + a2 cos(4 pi n / N), N = size (periodic) or size - 1."""
    size, dtype = node.operand(0), dtype_from(node.attr("output_datatype", 1))
    factors, less = _WINDOWS[node.op.name_in_file], 0 if node.attr("periodic", 1) else 1
    real = real_type(Term(b, size))
    index, period = (Term(b, v).to(real) for v in (iota(b, size), reshape(b, size, ())))
    n = index / (period - float(less))
    total = n * 0.0 + factors[0]
    for k, factor in enumerate(factors[1:], 1):
        total = total + (n * (2 * math.pi * k)).apply(ops.Cos) * (factor * (-1) ** k)
    return total.to(DType.FLOAT32).to(dtype).value


@lift_onnx("MelWeightMatrix", since=(17,))
def _mel_weight_matrix(b: Builder, node: Node) -> Value:
    """Return triangular weights over the spectrum. Source: ONNX's reference implementation."""
    matrix = mel_matrix(b, *(node.operand(i) for i in range(5)))
    return matrix.to(DType.FLOAT32).to(dtype_from(node.attr("output_datatype", 1))).value


def mel_matrix(b: Builder, bins: Value, length: Value, rate: Value, lower: Value, upper: Value) -> Term:
    """Return the weights [length // 2 + 1, bins] of mel bands; all operands have one element.

    ValueError if bands are known to exceed the spectrum.
    """
    count, size = number(b, bins), number(b, length)
    hertz, *limits = (Term(b, reshape(b, v, (1,))) for v in (rate, lower, upper))
    real = real_type(count, size, hertz, *limits)
    low, high = (_mel(limit.to(real)) for limit in limits)
    step, lines = (high - low) / (count + 2).to(real), (size + 1).to(real)
    index = places(count).to(real)
    left, center, right = (_edges((index + float(i)) * step + low, lines, hertz.to(real)) for i in range(3))
    half = size // 2 + 1
    _check_edges(right, half)
    line = places(half).to(real).along(0, 2)
    rising, falling = (line - left) / (center - left).max(1.0), (right - line) / (right - center).max(1.0)
    between = rising.min(falling).max(0.0)
    return line.equals(center).choose(between.constant(1.0), between)


def _mel(hertz: Term) -> Term:
    return (hertz / 700.0 + 1.0).log() * (2595 / math.log(10))


def _edges(mels: Term, lines: Term, rate: Term) -> Term:
    """Return the frequency bins at `mels`, rounded down."""
    hertz = ((mels * (math.log(10) / 2595)).exp() - 1.0) * 700.0
    return (hertz * lines / rate).floor()


def _check_edges(edges: Term, lines: Term) -> None:
    known = static_ints(lines.value)
    if known is not None and edges.value.is_constant and (edges.value.numpy() > known[0]).any():
        raise ValueError(f"mel bands up to frequency bin {edges.value.numpy().max():g} of a spectrum of {known[0]}")
