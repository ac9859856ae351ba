"""A saved image classifier: how its images become numbers, and what is refused before anything is exported."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tasks.saved_images import CROPPED, SIDE, SQUARE, photograph, save

from onnxreg.converters.tasks.image_classification import ImageClassification
from onnxreg.converters.tasks.preprocessing import PHOTOGRAPHS, image_input, preprocessing_of, read_image
from onnxreg.converters.tasks.processed import Processed
from onnxreg.converters.tasks.task import IMAGES
from onnxreg.converters.tasks.task_catalog import find, of_source
from onnxreg.schema.core.errors import HostError, InputError
from onnxreg.schema.manifest.manifest import Preprocessing

HALF = {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "color": "RGB"}
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
WIDE = {"size": {"height": 40, "width": 40}, "crop_size": SQUARE["size"]}


@pytest.mark.parametrize(
    ("processor", "settings", "stated"),
    [
        ("ViT", SQUARE, {**HALF, "resample": "bilinear"}),
        (
            "ViT",
            {**SQUARE, "resample": 1, "do_normalize": False},
            {"mean": [0, 0, 0], "std": [1, 1, 1], "resample": "lanczos"},
        ),
        ("ViT", {**SQUARE, **IMAGENET}, {"mean": IMAGENET["image_mean"], "std": IMAGENET["image_std"]}),
        ("CLIP", CROPPED, {"resize": 40, "resample": "bicubic"}),
        ("ConvNext", {"size": {"shortest_edge": SIDE}}, {"resize": 36, "resample": "bicubic"}),
        ("MobileViT", CROPPED, {"color": "BGR", "resize": 40}),
        ("DeiT", WIDE, None),  # scales both edges, then crops
        ("EfficientNet", {**SQUARE, "rescale_offset": True}, None),  # from -1 to 1 before the mean
    ],
)
def test_a_processor_is_stated_only_if_the_statement_gives_its_numbers(processor, settings, stated):
    import transformers
    from PIL import Image

    own = getattr(transformers, f"{processor}ImageProcessorPil")(**settings)
    generator = np.random.default_rng(1)
    images = [Image.fromarray(generator.integers(0, 256, (*size, 3), dtype=np.uint8)) for size in PHOTOGRAPHS]
    rows = [np.asarray(own(image, return_tensors="np")["pixel_values"]) for image in images]
    found = preprocessing_of(own.to_dict(), list(zip(images, rows, strict=True)))
    if stated is None:
        assert found is None
        return
    assert found is not None
    document = found.to_json()
    assert {**document, **stated} == document and document["size"] == [SIDE, SIDE]
    assert None not in document.values()
    np.testing.assert_allclose(image_input(images[0], found), rows[0], rtol=0, atol=1e-4)
    drawn = [
        [[(2 * x + y + 64 * c + x * y % 50) % 256 for c in range(3)] for x in range(331)] for y in range(247)
    ]
    numbers = own(Image.fromarray(np.array(drawn, np.uint8)), return_tensors="np")["pixel_values"].reshape(-1)
    sample = numbers[:: len(numbers) // 64][:64]  # as docs/format.md says
    np.testing.assert_allclose(document["sample"], sample, rtol=0, atol=1e-4)


def test_an_image_with_fewer_numbers_than_a_sample_states_all():
    from PIL import Image

    pair = (Image.fromarray(np.full((9, 9, 3), 255, np.uint8)), np.ones((1, 3, 4, 4), np.float32))
    found = preprocessing_of({}, [pair])
    assert found is not None and len(found.to_json()["sample"]) == 3 * 4 * 4


def test_layouts_colours_and_the_orientation_of_a_camera(tmp_path):
    from PIL import Image

    one = {"size": [2, 3], "mean": [0.0], "std": [0.5], "color": "L"}
    grey = read_image(photograph(tmp_path / "a.png", "L"), Preprocessing.from_json(one))
    assert (grey.shape, grey.dtype) == ((1, 1, 2, 3), np.float32) and 0 < grey.min() < grey.max() <= 2
    plain = {"size": [5, 4], "mean": [0.0] * 3, "std": [1.0] * 3}
    pixels = np.arange(60, dtype=np.uint8).reshape(5, 4, 3)
    Image.fromarray(pixels).save(tmp_path / "b.png")
    last = read_image(
        tmp_path / "b.png", Preprocessing.from_json({**plain, "layout": "NHWC", "color": "BGR"})
    )
    np.testing.assert_allclose(last[0], pixels[..., ::-1] / 255, atol=1e-6)
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    Image.fromarray(pixels).save(tmp_path / "c.png", exif=exif)
    turned = read_image(tmp_path / "c.png", Preprocessing.from_json({**plain, "size": [4, 5]}))
    np.testing.assert_allclose(turned[0].transpose(1, 2, 0), np.rot90(pixels, -1) / 255, atol=1e-6)


BAD: dict[str, dict[str, Any]] = {
    "ratio": {
        "image_processor_type": "DetrImageProcessor",
        "size": {"shortest_edge": 32, "longest_edge": 64},
    },
    "unknown": {"image_processor_type": "NoSuchImageProcessor"},
    "text": {"image_mean": "half"},
    "patches": {"image_processor_type": "Pix2StructImageProcessor"},
}


def bad(directory: Path, name: str) -> Path:
    save(directory, side=64 if name == "size" else SIDE)
    path = directory / "preprocessor_config.json"
    settings = json.loads(path.read_bytes()) | BAD.get(name, {})
    path.write_text(json.dumps(settings))
    if name == "none":
        path.unlink()
    return directory


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none", "the checkpoint has no image processor"),
        ("ratio", "gives numbers of several sizes: (3, "),
        ("unknown", "the image processor of the checkpoint could not be loaded"),
        ("text", "could not be loaded: could not convert string to float: 'half'"),
        ("patches", "does not take the [2048, 770] of its image processor"),
        ("size", "does not take the [3, 32, 32] of its image processor"),
    ],
)
def test_a_checkpoint_whose_processor_does_not_fit(name, message, tmp_path):
    task = Processed.of(IMAGES)()
    directory = bad(tmp_path / "vit", name)
    with pytest.raises(InputError) as refused:
        task.load(task.find(str(directory)), "acme/vit", tmp_path)
    assert (message in refused.value.message and refused.value.hint) or name in ("unknown", "text")
    assert str(tmp_path) not in str(refused.value)


def test_a_module_of_a_function_and_a_checkpoint_are_one_task(tmp_path):
    def kind(source: str, **options: Any) -> type:
        return of_source(ImageClassification, source, options)

    (tmp_path / "run").mkdir()
    assert kind(str(save(tmp_path / "vit"))) is kind("google/vit") is not ImageClassification
    assert kind("net.py:build") is kind(str(tmp_path / "run")) is ImageClassification
    assert kind("google/vit", input=[3, 8, 8]) is ImageClassification


UNBOUNDED: list[dict[str, Any]] = [
    *(
        {"input_size": size}
        for size in ([3, 100000, 100000], [3, 1, 4097], [3, 0, 8], [3, 8], [3, 8, True], "x", None)
    ),
    *({"input_size": [3, 224, 224], "crop_pct": part} for part in (0.001, -1, "x")),
]


@pytest.mark.parametrize(
    ("config", "family", "hint"),
    [
        ({"architecture": "resnet18"}, HostError, "pip install '.[timm]'"),
        ({"architecture": "hf-hub:acme/resnet18"}, InputError, "save_for_hf"),
        ({"architecture": "../resnet18"}, InputError, "save_for_hf"),
        ({"architecture": "resnet18", "model_args": {"checkpoint_path": "a.pth"}}, InputError, "save_for_hf"),
        ({"architecture": "resnet18", "model_args": 5}, InputError, "save_for_hf"),
        ({}, InputError, "save_for_hf"),
        *(
            ({"architecture": "resnet18", "pretrained_cfg": bad}, InputError, "save_for_hf")
            for bad in ("x", [], None)
        ),
        *(({"architecture": "resnet18", "pretrained_cfg": bad}, InputError, "pixels") for bad in UNBOUNDED),
    ],
)
def test_a_model_of_timm_needs_timm_and_nothing_beyond_its_directory(
    config, family, hint, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "timm", None)
    (tmp_path / "config.json").write_text(json.dumps({"pretrained_cfg": {}, **config}))
    (tmp_path / "model.safetensors").write_bytes(b"")
    task = of_source(find("image-classification"), str(tmp_path), {})
    with pytest.raises(family) as refused:
        task().find(str(tmp_path))
    assert hint in refused.value.hint


def test_two_classes_with_one_name_get_their_numbers(tmp_path):
    """As the two cranes of ImageNet."""
    save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    names = config["id2label"] | {"1": "crane", "4": "crane"}
    (tmp_path / "config.json").write_text(json.dumps({**config, "id2label": names}))
    task = Processed.of(IMAGES)()
    labels = task.checkpoint(task.find(str(tmp_path))).labels
    assert labels == ("cat", "crane (1)", "fish", "owl", "crane (4)")
