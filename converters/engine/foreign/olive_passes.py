"""Table of Olive's passes: the names are the same here, and so are most parameters.

Every other parameter is one of: filled in with Olive's default if our default differs (`defaults`), or with
the value of Olive's documentation if its program differs from it (`documented`); kept at our default
(`own_defaults`); under another name (`renamed`); without a meaning here (`unused`); possible with one value
alone (`only`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from onnxreg.converters.passes import mixed_precision, pass_catalog
from onnxreg.schema.core.errors import InputError, suggest

ParameterNote = tuple[str, Any, str]
"""A parameter, its value and its outcome."""

STORAGE = "not used: how weights are stored follows from their size"
LAYOUT = dict.fromkeys(
    (
        "save_as_external_data",
        "all_tensors_to_one_file",
        "external_data_name",
        "size_threshold",
        "convert_attribute",
    ),
    STORAGE,
)
"""Parameters of Olive's file layout, which every pass of a graph has."""
SCRIPTS: Mapping[str, tuple[Any, ...]] = {"user_script": (None,), "script_dir": (None,)}

Rename = Callable[[Any], tuple[str, Any]]


@dataclass(frozen=True)
class OlivePass:
    """One of Olive's passes; the pass here has the same id."""

    id: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    own_defaults: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, Rename] = field(default_factory=dict)
    unused: Mapping[str, str] = field(default_factory=dict)
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    documented: Mapping[str, tuple[Any, str]] = field(default_factory=dict)

    def translate(self, options: Mapping[str, Any], label: str) -> tuple[dict[str, Any], list[ParameterNote]]:
        """Return the parameters of our pass, and a note for each that is not simply taken over.

        Raises InputError, naming the parameter, if it is unknown or not supported here.
        """
        params: dict[str, Any] = {}
        notes: list[ParameterNote] = []
        aliases = _names(self.id)
        for key, value in options.items():
            if key in self.renamed:
                name, converted = self.renamed[key](value)
                params[name] = converted
                notes.append((key, value, f"{name}: {converted}"))
            elif key in self.unused:
                notes.append((key, None, self.unused[key]))
            elif key in self.only:
                _check_only(key, value, self.only[key], label)
                notes.append((key, value, "as it is here anyway"))
            elif key not in aliases:
                names = [*aliases, *self.renamed, *self.unused, *self.only]
                raise InputError(f"{label}: {self.id} has no parameter {key!r} here", suggest(key, names))
            elif value is not None and aliases[key] in params:
                raise InputError(f"{label}: {key} is another name of {aliases[key]}, which is given too")
            elif value is not None:
                params[aliases[key]] = value
        for key, value in self.defaults.items():
            if key not in params:
                params[key] = value
                notes.append((key, value, "Olive's default"))
        for key, (value, reason) in self.documented.items():
            if key not in params:
                params[key] = value
                notes.append((key, value, reason))
        notes += [
            (key, None, reason) for key, reason in self.own_defaults.items() if options.get(key) is None
        ]
        return params, notes


def _names(kind: str) -> dict[str, str]:
    """Map every alias of a parameter of our pass to its recorded name."""
    return {
        alias: name
        for name, info in pass_catalog.find(kind).Params.model_fields.items()
        for alias in (name, *getattr(info.validation_alias, "choices", ()))
    }


def _check_only(key: str, value: Any, allowed: tuple[Any, ...], label: str) -> None:
    if value not in allowed:
        values = " or ".join(repr(item) for item in allowed)
        raise InputError(f"{label}: {key} can only be {values} here, not {value!r:.80}")


def _weight_type(value: Any) -> tuple[str, Any]:
    return "weight_type", {"int8": "QInt8", "uint8": "QUInt8"}.get(str(value).lower(), value)


EIGHT_BIT: Mapping[str, Any] = {
    "renamed": {"precision": _weight_type},
    "unused": {**LAYOUT, "quant_preprocess": "not used: a graph is quantized as the step before it left it"},
    "only": {
        "op_types_to_exclude": (None, []),
        "nodes_to_quantize": (None, []),
        "activation_symmetric": (False, None),
        "weight_symmetric": (None,),
        "extra_options": (None, {}),
        **SCRIPTS,
    },
}
NO_DATA = "calibration data are a .npz file here: write a recipe of your own, with `data` in the step"
REFUSED = {
    "OnnxStaticQuantization": NO_DATA,
    "OnnxQuantization": "say which one: OnnxDynamicQuantization, or a recipe of your own with OnnxStaticQuantization",
}
"""Olive's passes that cannot be translated, each with a hint."""

PASSES = (
    OlivePass(
        "OnnxConversion",
        {"target_opset": 20},
        unused={
            **LAYOUT,
            "parallel_jobs": "not used: one process converts",
            "past_key_value_name": "not used: no graph here has a past",
            "optimize": "not used: the exporter's own constant folding is what it has",
        },
        only={
            "device": (None, "cpu"),
            "torch_dtype": (None, "float32"),
            "merge_adapter_weights": (False,),
            "save_metadata_for_token_generation": (False,),
            **SCRIPTS,
        },
    ),
    OlivePass(
        "OnnxOpVersionConversion",
        own_defaults={
            "target_opset": "21; Olive's default is the newest opset that onnx knows, which ONNX Runtime may not load"
        },
        unused=LAYOUT,
    ),
    OlivePass(
        "ModelBuilder",
        unused={**LAYOUT, "search": "not used: how text is searched for is the application's to say"},
        only={
            "metadata_only": (False,),
            **dict.fromkeys(
                (
                    "int4_is_symmetric",
                    "int4_op_types_to_quantize",
                    "int4_nodes_to_exclude",
                    "int4_algo_config",
                ),
                (None,),
            ),
            **dict.fromkeys(
                (
                    "use_qdq",
                    "use_8bits_moe",
                    "use_webgpu_fp32",
                    "use_cuda_bf16",
                    "include_hidden_states",
                    "exclude_embeds",
                    "exclude_lm_head",
                    "enable_cuda_graph",
                ),
                (None, False),
            ),
            "extra_options": (None, {}),
        },
    ),
    OlivePass(
        "OnnxFloatToFloat16",
        {"keep_io_types": False, "min_positive_val": 1e-7, "max_finite_val": 1e4},
        unused={**LAYOUT, "use_symbolic_shape_infer": "not used: types alone are inferred"},
    ),
    OlivePass(
        "OnnxIODataTypeConverter",
        documented={
            "name_pattern": (
                ".*",
                "all inputs and outputs, as Olive's page says; its program takes logits alone",
            )
        },
        unused=LAYOUT,
    ),
    OlivePass(
        "OrtMixedPrecision",
        {"keep_io_types": False, "op_block_list": list(mixed_precision.OLIVE)},
        unused={
            **LAYOUT,
            "atol": "not used: Olive asks with it whether the last weight is exact in float16; here the outputs are held "
            "to an atol of 0.01 of their largest value",
        },
    ),
    OlivePass("DynamicToFixedShape", unused=LAYOUT),
    OlivePass(
        "OnnxDynamicQuantization",
        {"per_channel": False},
        {
            "op_types_to_quantize": "MatMul and Gemm; Olive's default is every type that ONNX Runtime can quantize"
        },
        **{**EIGHT_BIT, "only": {**EIGHT_BIT["only"], "quant_mode": ("dynamic",)}},
    ),
    OlivePass(
        "OnnxBlockWiseRtnQuantization",
        unused=LAYOUT,
        only={"axis": (0,), "nodes_to_include": (None, [])},
    ),
    OlivePass(
        "OrtTransformersOptimization",
        own_defaults={"model_type": "bert; Olive asks the checkpoint"},
        unused={**LAYOUT, "keep_io_types": "not used: no type is changed"},
        only={
            "num_key_value_heads": (0,),
            "optimization_options": (None, {}),
            **dict.fromkeys(("use_gpu", "float16", "use_gqa", "input_int32"), (False,)),
            **dict.fromkeys(("force_fp32_ops", "force_fp32_nodes", "force_fp16_inputs"), (None, [])),
            **SCRIPTS,
        },
    ),
)


def table() -> str:
    """Format in Markdown, for each pass, the parameters filled in, restricted to one value, and not used."""
    rows = [
        (
            f"`{work.id}`",
            _listed(
                {**work.defaults, **{key: value for key, (value, _) in work.documented.items()}}, values=True
            ),
            _listed(work.own_defaults),
            _listed(work.renamed),
            _listed(work.only),
            _listed(work.unused),
        )
        for work in PASSES
    ]
    lines = [
        "| pass | filled in | our default | converted | only Olive's default | ignored |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    note = "Ignored in every pass: " + _listed(LAYOUT, all_of_them=True) + "."
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows), "", note]) + "\n"


def _listed(names: Mapping[str, Any], values: bool = False, all_of_them: bool = False) -> str:
    listed = [name for name in names if all_of_them or name not in LAYOUT]
    return ", ".join(f"`{name}` {names[name]}" if values else f"`{name}`" for name in listed)
