"""An independent judge of children whose quantizer kept the names of values: numpy, and nothing of the program.

It knows one scheme of names (`W_quantized`, `W_scale`, `W_zero_point`, `W_Q4`, `W_Q8`), and follows values by name.
"""

from typing import Any

import numpy as np
from onnx.numpy_helper import to_array

ROUNDINGS = [(0, np.inf), (5.96e-8, 65504), (1e-7, 65504), (1e-7, 1e4)]
PASSED = {"Cast", "Identity", "DynamicQuantizeLinear", "QuantizeLinear", "DequantizeLinear"}


def judge(parent: Any, child: Any) -> str:
    """The verdict on a child, as docs/prove.md defines it."""
    old, new = ({t.name: to_array(t) for t in m.graph.initializer} for m in (parent, child))
    made = {name: (node, at) for node in child.graph.node for at, name in enumerate(node.output)}
    ops = {node.output[0]: node for node in parent.graph.node}
    halves, doubts = set(range(4)), []

    def same(name: str, other: str) -> bool:
        """A value of the parent and one of the child."""
        while other in made and made[other][0].op_type in PASSED and not is_coded(made[other][0]):
            node = made[other][0]
            if node.op_type == "Cast" and not float_cast(node, ops.get(name)):
                break
            other = node.input[0]
        node, at = made.get(other, (None, 0))
        if name in old:
            return weight(name, other, node)
        if name not in ops:
            return name == other
        return node is not None and at == 0 and product(ops[name], node)

    def float_cast(node: Any, mine: Any) -> bool:
        """A cast of the child alone, between floats."""
        return node.attribute[0].i in (1, 10) and (mine is None or mine.op_type != "Cast")

    def is_coded(node: Any) -> bool:
        rows = made.get(node.input[0], (None, 0))[0]
        return node.op_type == "DequantizeLinear" and (
            node.input[0] in new or (rows is not None and rows.op_type == "Gather" and rows.input[0] in new)
        )

    def product(mine: Any, node: Any) -> bool:
        """One operator of the parent and its form in the child."""
        kind, inputs = node.op_type, list(node.input)
        if mine.op_type == "MatMul" and kind == "Mul":  # Cast(MatMulInteger) * (scale * scale)
            cast, scales = (made[name][0] for name in inputs)
            core = made[cast.input[0]][0]
            quantize = made[core.input[0]][0]
            kinds = [one.op_type for one in (cast, scales, core, quantize)]
            if kinds != ["Cast", "Mul", "MatMulInteger", "DynamicQuantizeLinear"] or cast.attribute[0].i != 1:
                return False
            good = [core.input[0], core.input[2], scales.input[0]] == [
                quantize.output[at] for at in (0, 2, 1)
            ]
            stem = core.input[1].removesuffix("_quantized")
            good &= [core.input[3], scales.input[1]] == [f"{stem}_zero_point", f"{stem}_scale"]
            return (
                good and same(mine.input[0], quantize.input[0]) and weight(mine.input[1], core.input[1], None)
            )
        if mine.op_type == "MatMul" and kind == "MatMulNBits":
            return same(mine.input[0], inputs[0]) and weight(mine.input[1], inputs[1], node)
        if mine.op_type == "Gemm" and kind == "Add":
            return sum_of(mine, node)
        if mine.op_type == "Gather" and kind == "DequantizeLinear":
            core = made[inputs[0]][0]
            stem = core.input[0].removesuffix("_quantized")
            return inputs[1:] == [f"{stem}_scale", f"{stem}_zero_point"] and product(mine, core)
        alike = (mine.op_type, facts(mine), len(mine.input)) == (kind, facts(node), len(inputs))
        return alike and all(map(same, mine.input, inputs))

    def sum_of(gemm: Any, node: Any) -> bool:
        core = made[node.input[0]][0]
        fake = type(gemm)(op_type="MatMul", input=gemm.input[:2], output=["product"])
        return product(fake, core) and same(gemm.input[2], node.input[1])

    def facts(node: Any) -> list[Any]:
        return sorted((a.name, a.SerializeToString()) for a in node.attribute if (a.name, a.i) != ("to", 10))

    def weight(name: str, other: str, node: Any) -> bool:
        if node is not None and node.op_type == "DequantizeLinear":
            other = node.input[0]
        value, found = old[name].astype(float), new.get(other)
        if found is None:
            return False
        if found.dtype == old[name].dtype:
            return found.tobytes() == old[name].tobytes()
        if found.dtype == np.float16:
            return half(value, found)
        if node is not None and node.op_type == "MatMulNBits":
            return blocks(value, node)
        stem = other.removesuffix("_quantized")
        scale, zero = new[f"{stem}_scale"].astype(float), new[f"{stem}_zero_point"].astype(float)
        value = value.T if value.shape != found.shape else value
        groups = None if scale.size == 1 else tuple(range(value.ndim - 1))
        return codes(value, found.astype(float), scale, zero, groups, found.dtype == np.int8)

    def codes(v: Any, q: Any, s: Any, z: Any, axes: Any, signed: bool, block: bool = False) -> bool:
        with np.errstate(all="ignore"):
            off = np.abs(np.where(v == 0, 0, v / s) + z - q)
        low, high = np.minimum(v.min(axes, keepdims=True), 0), np.maximum(v.max(axes, keepdims=True), 0)
        low, high = (x.reshape(np.shape(s)) if np.size(s) == x.size else x for x in (low, high))
        top = int(block and 2 ** (block - 1)) or 0
        rules = [(high - low) / n for n in ((15, 255) if block else (255, 127, 128))]
        rules += [2 * np.maximum(-low, high) / n for n in (254, 128)] if signed else []
        rules += [np.where(high > -low, high, low) / -top] if block else []
        known = any(
            np.all((np.abs(np.abs(r) - np.abs(s)) <= 1e-6 * np.abs(r)) | (high == low)) for r in rules
        )
        ends = ((q == 0) | (q == 2 * top - 1)) & (off <= 1) if block else False
        wrong = (off > 0.5001) & ~np.asarray(ends)
        if (wrong & (off > 1)).mean() > 0.1:
            return False
        doubts.extend(["codes"] * bool(wrong.any()) + ["scale"] * (not known))
        return True

    def half(value: Any, found: Any) -> bool:
        with np.errstate(over="ignore", invalid="ignore"):
            fits = {
                at for at in halves for low, high in [ROUNDINGS[at]]
                if np.array_equal(np.where(value == 0, 0, np.sign(value) * np.clip(abs(value), low, high)).astype(np.float32).astype(np.float16), found)
            }  # fmt: skip
            far = ~(np.abs(found.astype(float) - value) <= np.abs(np.spacing(value.astype(np.float16))))
        halves.intersection_update(fits) if fits else doubts.append("half")
        return bool(fits) or float(far.mean()) <= 0.1

    def blocks(value: Any, node: Any) -> bool:
        size = {a.name: a.i for a in node.attribute}
        columns, count, _ = new[node.input[1]].shape
        unpack = (
            (lambda x: np.stack([x & 15, x >> 4], -1).reshape(*x.shape[:-1], -1))
            if size["bits"] == 4
            else np.asarray
        )
        codes_ = unpack(new[node.input[1]]).reshape(columns, count, -1).astype(float)
        scale = new[node.input[2]].reshape(columns, count, 1).astype(float)
        zero = (
            unpack(new[node.input[3]].reshape(columns, -1))[:, :count, None]
            if len(node.input) > 3
            else 2 ** (size["bits"] - 1)
        )
        padded = np.zeros((columns, count * size["block_size"]))
        padded[:, : value.shape[0]] = value.T
        codes_.reshape(columns, -1)[:, value.shape[0] :] = np.broadcast_to(zero, codes_.shape).reshape(
            columns, -1
        )[:, value.shape[0] :]
        return codes(padded.reshape(codes_.shape), codes_, scale, zero, (2,), False, size["bits"])

    try:
        good = all(same(out.name, out.name) for out in parent.graph.output)
    except (KeyError, IndexError, AttributeError, ValueError, TypeError):
        good = False
    fixed = any(node.op_type == "QuantizeLinear" for node in child.graph.node)
    return "not-provable" if not good else "bounded" if doubts or fixed else "proven"
