"""Sequence LSTM and RNN with zeros as initial state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from tools.probe.case import Array, Case, draw
from tools.probe.registry import probe

_GATES = ("i", "f", "c", "o")
_WEIGHTS = {"T": "float32", "W": "float32", "B": "float32"}


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def lstm(x: Array, w: Sequence[Array], r: Sequence[Array], b: Sequence[Array]) -> Array:
    """[time, batch, in] -> [time, batch, units]; the gates are input, forget, cell, output."""
    h = c = np.zeros((x.shape[1], r[0].shape[0]), np.float32)
    steps = []
    for now in x:
        i, f, g, o = (now @ w[k].T + h @ r[k].T + b[k] for k in range(4))
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        h = (_sigmoid(o) * np.tanh(c)).astype(np.float32)
        steps.append(h)
    return np.stack(steps)


def rnn(x: Array, w: Array, r: Array, b: Array) -> Array:
    """[time, batch, in] -> [time, batch, units], with tanh."""
    h = np.zeros((x.shape[1], r.shape[0]), np.float32)
    steps = []
    for now in x:
        h = np.tanh(now @ w.T + h @ r.T + b).astype(np.float32)
        steps.append(h)
    return np.stack(steps)


def _lstm_weights(seed: str, inputs: int = 3, units: int = 4) -> tuple[list[Array], list[Array], list[Array]]:
    w = [draw("float32", (units, inputs), seed=seed + g, low=-1, high=1) for g in _GATES]
    r = [draw("float32", (units, units), seed=seed + "r" + g, low=-1, high=1) for g in _GATES]
    return w, r, [draw("float32", (units,), seed=seed + "b" + g) for g in _GATES]


def _time_major(x: Array, major: bool) -> Array:
    return x if major else np.ascontiguousarray(np.swapaxes(x, 0, 1))


@probe("UNIDIRECTIONAL_SEQUENCE_LSTM")
def unidirectional_lstm(op: str) -> Iterator[Case]:
    """No peepholes, no projection, no layer norm; time first and batch first."""
    w, r, b = _lstm_weights("f")
    x = draw("float32", (5, 2, 3))
    state = np.zeros((2, 4), np.float32)
    for major in (False, True):
        operands = [_time_major(x, major), *w, *r, None, None, None, *b, None, None, state, state, *[None] * 4]
        options = {"fused_activation_function": "TANH", "cell_clip": 0.0, "proj_clip": 0.0, "time_major": major}
        yield Case(
            op, _WEIGHTS, operands, [_time_major(lstm(x, w, r, b), major)], options, **_fixed(operands, (18, 19))
        )


@probe("UNIDIRECTIONAL_SEQUENCE_RNN")
def unidirectional_rnn(op: str) -> Iterator[Case]:
    """With tanh; time first and batch first."""
    w, r = (draw("float32", (4, n), low=-1, high=1) for n in (3, 4))
    b, x, state = draw("float32", (4,)), draw("float32", (5, 2, 3)), np.zeros((2, 4), np.float32)
    for major in (False, True):
        operands = [_time_major(x, major), w, r, b, state]
        options = {"fused_activation_function": "TANH", "time_major": major}
        yield Case(op, _WEIGHTS, operands, [_time_major(rnn(x, w, r, b), major)], options, **_fixed(operands, (4,)))


@probe("BIDIRECTIONAL_SEQUENCE_LSTM")
def bidirectional_lstm(op: str) -> Iterator[Case]:
    """Separate and concatenated results."""
    forward, backward = _lstm_weights("f"), _lstm_weights("b")
    x, state = draw("float32", (5, 2, 3)), np.zeros((2, 4), np.float32)
    one = [*forward[0], *forward[1], None, None, None, *forward[2], None, None]
    two = [*backward[0], *backward[1], None, None, None, *backward[2], None, None]
    y, z = lstm(x, *forward), lstm(x[::-1], *backward)[::-1]
    for major in (True, False):
        for merged in (False, True):
            operands = [_time_major(x, major), *one, *two, *[state] * 4, *[None] * 9]
            options = {"fused_activation_function": "TANH", "cell_clip": 0.0, "proj_clip": 0.0}
            options |= {"time_major": major, "merge_outputs": merged}
            parts = [np.concatenate([y, z], -1)] if merged else [y, z]
            results = [np.ascontiguousarray(_time_major(part, major)) for part in parts]
            yield Case(op, _WEIGHTS, operands, results, options, **_fixed(operands, (35, 36, 37, 38)))


@probe("BIDIRECTIONAL_SEQUENCE_RNN")
def bidirectional_rnn(op: str) -> Iterator[Case]:
    """Separate and concatenated results."""
    weights = [[draw("float32", s, seed=d, low=-1, high=1) for s in ((4, 3), (4, 4), (4,))] for d in "fb"]
    x, state = draw("float32", (5, 2, 3)), np.zeros((2, 4), np.float32)
    y, z = rnn(x, *weights[0]), rnn(x[::-1], *weights[1])[::-1]
    for major in (True, False):
        for merged in (False, True):
            operands = [_time_major(x, major), *weights[0], state, *weights[1], state, None, None, None]
            options = {"fused_activation_function": "TANH", "time_major": major, "merge_outputs": merged}
            parts = [np.concatenate([y, z], -1)] if merged else [y, z]
            results = [np.ascontiguousarray(_time_major(part, major)) for part in parts]
            yield Case(op, _WEIGHTS, operands, results, options, **_fixed(operands, (4, 8)))


def _fixed(operands: Sequence[Array | None], states: Sequence[int]) -> dict[str, Any]:
    """Constants and states of a case: all operands after the first one are constant or states."""
    constants = frozenset(i for i, a in enumerate(operands) if i and a is not None and i not in states)
    return {"constants": constants, "states": frozenset(states)}
