"""Children that other programs make, each with packages of its own in a folder before this environment's.

    PYTHONPATH=FOLDER python peers.py KIND SOURCE DIRECTORY

writes each child of the model SOURCE as DIRECTORY/NAME.onnx. Nothing here imports the program.
"""

import logging
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

PACKAGES: dict[str, tuple[str, ...]] = {
    "onnxruntime-1.28": ("onnxruntime==1.28.*",),
    "onnxruntime-1.29": ("onnxruntime==1.29.*",),
    "onnxruntime-1.30": ("onnxruntime==1.30.*",),
    "onnxconverter": ("onnxconverter-common==1.16.0",),
    "openmed": ("openmed==3.1.0",),
    "optimum": ("optimum==2.1.0", "optimum-onnx==0.1.0", "transformers==4.57.6", "huggingface_hub==0.36.0", "tokenizers==0.22.1", "requests", "urllib3", "charset-normalizer", "idna", "certifi"),
    "olive": ("olive-ai==0.13.0", "opentelemetry-api", "opentelemetry-sdk", "opentelemetry-semantic-conventions", "requests", "urllib3", "charset-normalizer", "idna", "certifi", "pandas", "optuna", "colorlog", "torchmetrics", "lightning-utilities"),
}  # fmt: skip
"""What pip installs for each kind, without dependencies: numpy, onnx and PyTorch are this environment's."""
EXPECTED = {"olive_OnnxKQuantQuantization": "bounded", "olive_OnnxHqqQuantization": "not-provable"}
"""The verdicts that are not `proven`: these choose scales by searching, or zero points that are not codes."""
Make = Callable[[str], None]


def halve(source: str, convert: Callable[..., Any], keep: bool, path: str) -> None:
    import onnx

    onnx.save(convert(onnx.load(source), keep_io_types=keep), path)


def onnxruntime(source: str) -> Iterator[tuple[str, Make]]:
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    from onnxruntime.quantization.shape_inference import quant_pre_process
    from onnxruntime.transformers.float16 import convert_float_to_float16

    def dynamic(path: str, origin: str = source, kind: str = "QInt8", **options: Any) -> None:
        quantize_dynamic(origin, path, weight_type=QuantType[kind], **options)

    def blocks(path: str, bits: int, symmetric: bool) -> None:
        quantizer = MatMulNBitsQuantizer(onnx.load(source), bits=bits, block_size=32, is_symmetric=symmetric)
        quantizer.process()
        onnx.save(quantizer.model.model, path)

    def preprocessed(path: str) -> None:
        quant_pre_process(source, f"{path}.first", skip_symbolic_shape=True)
        dynamic(path, f"{path}.first", per_channel=True)

    for kind in ("QInt8", "QUInt8"):
        for channels in (False, True):
            for reduced in (False, True):
                options = {"kind": kind, "per_channel": channels, "reduce_range": reduced}
                yield f"dynamic_{kind}_{channels}_{reduced}", partial(dynamic, **options)
    for bits in (4, 8):
        for symmetric in (False, True):
            yield f"blocks_{bits}_{symmetric}", partial(blocks, bits=bits, symmetric=symmetric)
    yield "preprocessed", preprocessed
    yield "half", partial(halve, source, convert_float_to_float16, True)


def onnxconverter(source: str) -> Iterator[tuple[str, Make]]:
    from onnxconverter_common.float16 import convert_float_to_float16

    for keep in (False, True):
        yield f"half_{keep}", partial(halve, source, convert_float_to_float16, keep)


def openmed(source: str) -> Iterator[tuple[str, Make]]:
    from openmed.onnx.quantize_int8 import quantize_android_int8, quantize_dynamic_int8

    yield "int8", lambda path: quantize_dynamic_int8(Path(source), Path(path))
    yield "android", lambda path: quantize_android_int8(Path(source), Path(path))


def optimum(source: str) -> Iterator[tuple[str, Make]]:
    from optimum.onnxruntime import ORTQuantizer
    from optimum.onnxruntime.configuration import AutoQuantizationConfig

    def quantize(path: str, target: str, channels: bool) -> None:
        folder = Path(path).with_suffix("")
        folder.mkdir()
        shutil.copy(source, folder / "model.onnx")
        (folder / "config.json").write_text('{"model_type": "bert"}')
        config = getattr(AutoQuantizationConfig, target)(is_static=False, per_channel=channels)
        quantizer = ORTQuantizer.from_pretrained(folder, file_name="model.onnx")
        quantizer.quantize(save_dir=folder / "small", quantization_config=config)
        shutil.copy(next((folder / "small").glob("*.onnx")), path)

    for target in ("arm64", "avx2", "avx512", "avx512_vnni"):
        for channels in (False, True):
            yield f"{target}_{channels}", partial(quantize, target=target, channels=channels)


def olive(source: str) -> Iterator[tuple[str, Make]]:
    from importlib import import_module

    from olive.model import ONNXModelHandler
    from olive.passes.olive_pass import create_pass_from_dict

    def run(path: str, module: str, name: str, config: dict[str, Any]) -> None:
        kind = getattr(import_module(f"olive.passes.onnx.{module}"), name)
        folder = Path(path).with_suffix("")
        done = create_pass_from_dict(kind, config, disable_search=True).run(
            ONNXModelHandler(source), str(folder / "m")
        )
        shutil.copy(done.model_path, path)

    channels = {"per_channel": True, "op_types_to_quantize": ["MatMul", "Gemm"]}
    passes: dict[tuple[str, str], list[dict[str, Any]]] = {
        ("quantization", "OnnxDynamicQuantization"): [{}, {"quant_preprocess": True}, channels],
        ("float16_conversion", "OnnxFloatToFloat16"): [{}, {"keep_io_types": True}],
        ("rtn_quantization", "OnnxBlockWiseRtnQuantization"): [{}, {"is_symmetric": False, "block_size": 32}],
        ("kquant_quantization", "OnnxKQuantQuantization"): [{}],
        ("hqq_quantization", "OnnxHqqQuantization"): [{}],
    }
    for (module, name), configs in passes.items():
        for number, config in enumerate(configs):
            yield f"olive_{name}-{number}", partial(run, module=module, name=name, config=config)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    kind, source, directory = sys.argv[1:]
    for name, make in globals()[kind.partition("-")[0]](source):
        make(f"{directory}/{name}.onnx")
