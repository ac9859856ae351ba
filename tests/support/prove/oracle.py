"""An independent judge of the tensors of a child whose graph is its parent's: numpy, and nothing of the program.

It reads names: the codes of `w` are `w_quantized` or `w_Q4`, their scales `w_scale` or `w_scales`, and so on.
"""

import re
from typing import Any

import numpy as np
from onnx.numpy_helper import to_array

BOUNDS = [(0, np.inf), (5.96e-8, 65504), (1e-7, 65504), (1e-7, 1e4)]
"""What converters do with numbers that float16 cannot express: the smallest and the largest magnitude."""


KINDS = ("scale", "zero_point")


def judge(parent: Any, child: Any) -> str:
    """The verdict of docs/prove.md."""
    old, new = ({t.name: to_array(t) for t in model.graph.initializer} for model in (parent, child))
    turned = {
        node.input[1] for node in parent.graph.node if any(a.name == "transB" and a.i for a in node.attribute)
    }
    verdicts = ["bounded" for node in child.graph.node if node.op_type == "QuantizeLinear"]
    short = {name for name in old.keys() & new.keys() if new[name].dtype.itemsize < old[name].dtype.itemsize}
    fits = [{name for name in short if rounded(old[name], new[name], *bounds)} for bounds in BOUNDS]
    verdicts += ["bounded"] * (short not in fits)
    for name, tensor in new.items():
        stem = re.sub(r"(_quantized|_DQ|_Q4|_Q8)+$", "", name)
        if name in short.difference(*fits):
            with np.errstate(over="ignore"):
                units = np.abs(old[name] - tensor.astype(float)) / np.spacing(np.abs(tensor)).astype(float)
            verdicts += ["not-provable"] * bool((units > 1).mean() > 0.1)
        elif name in old.keys() - short:
            verdicts += ["not-provable"] * (tensor.tobytes() != old[name].tobytes())
        elif stem in old and tensor.dtype.kind != "f":
            scale, zero = (
                next((new[n] for n in new if re.fullmatch(rf"{stem}_\w*{kind}s?", n)), None) for kind in KINDS
            )
            if scale is None:  # the bias of QGemm
                node = next(node for node in child.graph.node if name in node.input)
                scale = new[node.input[1]] * new[node.input[4]]
            value = old[stem].astype(float) * smoothing(child, stem, new)
            value = value.T if stem in turned and re.search("_Q[48]$", name) else value
            verdicts.append(judge_codes(value, tensor, scale, zero, "Q4" in name))
    return next((word for word in ("not-provable", "bounded") if word in verdicts), "proven")


def smoothing(child: Any, stem: str, stored: Any) -> Any:
    """The scales of the rows of a matrix whose product reads an activation divided by them: 1 for any other."""
    makers = {name: node for node in child.graph.node for name in node.output}
    origins = {
        name: node.input[0]
        for node in child.graph.node
        if node.op_type == "DynamicQuantizeLinear"
        for name in node.output
    }
    for node in child.graph.node:
        if any(re.fullmatch(rf"{stem}_(MatMul)?\w*(quantized|Q[48])", name) for name in node.input):
            maker = makers.get(origins.get(node.input[0], node.input[0]))
            inverse = (
                [stored[name] for name in maker.input if name.endswith("_inverse_scales")] if maker else []
            )
            return 1 / inverse[0][:, None].astype(float) if inverse else 1
    return 1


def rounded(wide: Any, narrow: Any, low: float, high: float) -> bool:
    value = np.where(wide == 0, wide, np.copysign(np.clip(np.abs(wide), low, high), wide))
    with np.errstate(over="ignore"):
        return np.array_equal(value.astype(np.float32).astype(narrow.dtype), narrow)


@np.errstate(invalid="ignore")  # `minimum.at` reports floating-point flags that earlier code has left
def judge_codes(value: Any, codes: Any, scale: Any, zero: Any, nibbles: bool) -> str:
    """Codes of one tensor: nearest, and by scales that a rule gives."""
    top = 15 if nibbles else np.iinfo(codes.dtype).max - np.iinfo(codes.dtype).min
    least = 0 if codes.dtype.kind == "u" or str(codes.dtype) == "uint4" else -(top // 2) - 1
    if zero is None:
        zero = np.array(0 if least else top // 2 + 1)
    if codes.ndim > value.ndim:  # MatMulNBits: for each column blocks of bytes
        columns, blocks, size = codes.shape
        value, scale, size = value.T, scale.reshape(columns, blocks), size * (1 + nibbles)
        codes, zero = unpack(codes, nibbles)[:, : value.shape[1]], unpack(zero, nibbles and zero.ndim > 0)
        zero = zero.reshape(-1, zero.size // columns)[:, :blocks] if zero.size > 1 else zero
    value = value.T if value.shape != codes.shape else value
    if scale.ndim == 1 and scale.size > 1:
        scale = (
            scale.reshape(-1, *[1] * (value.ndim - 1))
            if scale.size == len(value) != value.shape[-1]
            else scale[None]
        )
    group = np.arange(scale.size).reshape([1] * (value.ndim - scale.ndim) + list(scale.shape))
    for axis, length in enumerate(value.shape):
        group = group.repeat(-(-length // group.shape[axis]), axis)
        group = group.take(range(length), axis)
    low, high = np.zeros(scale.size), np.zeros(scale.size)
    np.minimum.at(low, group, value)
    np.maximum.at(high, group, value)
    scale, zero = scale.reshape(-1).astype(float), np.resize(zero.astype(float), scale.size)
    with np.errstate(all="ignore"):
        exact = np.where(value == 0, 0, value / scale[group]) + zero[group]
    off = np.abs(exact - codes.astype(float))
    beyond = (exact < least) & (codes == least) | (exact > least + top) & (codes == least + top)
    wrong = ~(off <= 0.5001) & ~beyond
    if (wrong & ~(off <= 1)).mean() > 0.1 or not np.isfinite(off).all():
        return "not-provable"
    widths = [high - low, 2 * np.maximum(-low, high), 2 * np.where(high > -low, -high, -low)]
    steps = {top, top - 1, top + 1, top // 2 + 1, top // 2}
    known = [np.abs(w / n - scale) <= 1e-6 * np.abs(scale) for w in widths for n in steps if top < 2**20]
    return "proven" if not wrong.any() and any(np.all(k | (low == high)) for k in known) else "bounded"


def unpack(packed: Any, nibbles: bool) -> Any:
    """Bytes of the last axes in a row, or their halves, the lower first."""
    halves = np.stack([packed & 15, packed >> 4], -1) if nibbles else packed
    return halves.reshape(len(packed), -1) if packed.ndim else packed
