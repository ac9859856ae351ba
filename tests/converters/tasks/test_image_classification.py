"""A checkpoint and the function that makes its module, as the source of an export."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxreg.converters.tasks.code import Consent
from onnxreg.converters.tasks.image_classification import ImageClassification
from onnxreg.converters.tasks.task import ExportSubject
from onnxreg.schema.core.errors import ConversionError, InputError, NotFoundError

INPUT = [1, 8, 8]


def task_of(project: Path, **options: Any) -> ImageClassification:
    return ImageClassification(project, False, Consent.of(["net.py"]), **{"input": INPUT, **options})


def load(project: Path, source: str = "net.py:build", **options: Any) -> ExportSubject:
    task = task_of(project, **{"checkpoint": "best.pth", **options})
    return task.load(task.find(source), "acme/digits", project)


def test_each_sample_is_run_alone_and_in_a_batch(project, save):
    """One sample still shows whether the batch is dynamic."""
    save()
    sample = load(project, samples=40).part
    assert [len(feed["input"]) for feed in sample.feeds] == [*[1] * 40, 32, 8]
    singles = np.concatenate([found["output"] for found in sample.expected[:40]])
    batches = np.concatenate([found["output"] for found in sample.expected[40:]])
    assert singles.shape == (40, 10)
    np.testing.assert_allclose(singles, batches, atol=1e-4)
    assert np.array_equal(sample.feeds[3]["input"], load(project, samples=40).part.feeds[3]["input"])
    assert [len(feed["input"]) for feed in load(project, samples=1).part.feeds] == [1, 2]
    fixed = load(project, samples=1, fixed_batch=True)
    assert ([len(feed["input"]) for feed in fixed.part.feeds], fixed.part.start.axes) == ([1], {})


@pytest.mark.parametrize(
    ("named", "asked", "expected"),
    [
        (True, (), ("digit", "parity")),
        (True, ("parity",), ("parity",)),
        (True, ("a", "b"), ("a", "b")),
        (False, ("count", "index"), ("count", "index")),  # names that a tuple has too
    ],
)
def test_every_output_has_a_name(project, save, named, asked, expected):
    save("Heads", named=named)
    subject = load(project, "net.py:Heads", outputs=asked, arguments={"named": named})
    assert subject.part.start.outputs == expected
    assert all(tuple(found) == expected for found in subject.part.expected)
    assert subject.resolved_options == {"outputs": list(expected)}


def test_labels_and_preprocessing_are_bound(project, save):
    save(classes=3)
    about = {"mean": [0.3], "std": [0.4], "color": "L"}
    subject = load(project, labels=["a", "b", "c"], preprocessing=about, arguments={"classes": 3})
    assert subject.fields == {
        "task": "image-classification",
        "labels": ["a", "b", "c"],
        "preprocessing": {**about, "size": [8, 8], "layout": "NCHW"},
    }


def test_the_digest_is_over_weights_and_code(project, save):
    task = task_of(project, checkpoint="best.pth")

    def digest() -> Any:
        return task.find("net.py:build").digest

    save()
    first = digest()
    (project / "elsewhere.pth").write_bytes((project / "best.pth").read_bytes())
    renamed = task_of(project, checkpoint="elsewhere.pth").find("net.py:build")
    assert digest() == first == renamed.digest
    with (project / "net.py").open("a") as file:
        file.write("# another content\n")
    assert digest() != first
    before = digest()
    save("Heads")
    assert digest() != before


def test_options_are_recorded_without_paths_and_one_may_name_the_factory(project, save):
    save()
    task = task_of(project, checkpoint=str(project / "best.pth"))
    recorded = task.record(task.find("net.py:build"))
    assert recorded["factory"] == "net:build"
    assert str(project) not in str(recorded) and recorded["checkpoint"].startswith("sha256:")
    assert load(project, str(project), factory="net.py:build").part.start.outputs == ("output",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input": [1, 8]}, "not valid at input"),
        ({"input": [0, 8, 8]}, "not valid at input"),
        ({"samples": 0}, "not valid at samples"),
        ({"samples": 10**9}, "not valid at samples"),
        ({"outputs": ["a", "a"]}, "have one name"),
        ({"outputs": ["input"]}, "have one name"),
        ({"outputs": ["no name"]}, "not valid at outputs"),
        ({"labels": ["a", "a"]}, "two classes have one name"),
        ({"preprocessing": {"mean": [0.5] * 3, "std": [1.0] * 3}}, "the input has 1 channels first, not RGB"),
        ({"preprocessing": {"mean": [0.5], "std": [0.0], "color": "L"}}, "std.0"),
        ({"preprocessing": {"mean": [0.5], "std": [1.0], "color": "L", "layout": "NHWC"}}, "channels first"),
        ({"labls": ["a"]}, "not valid at labls"),
        (
            {"arguments": {"weights": "/home/jane/best.pth"}},
            "arguments.weights names a place on this machine",
        ),
        (
            {"arguments": {"like": [{"file": "see C:\\Users\\jane\\a.txt"}]}},
            "arguments.like.0.file names a place",
        ),
        ({"arguments": {"/home/jane/a.txt": 1}}, "arguments.a.txt names a place on this machine"),
        ({"input": [3, 224, 224], "samples": 10_000}, "10000 samples take 5742 MiB"),
    ],
)
def test_an_option_that_makes_no_sense(options, message):
    with pytest.raises(InputError, match=message):
        ImageClassification(**{"input": INPUT, **options})


@pytest.mark.parametrize(
    ("source", "options", "error", "message"),
    [
        ("net.py:build", {"checkpoint": "absent.pth"}, NotFoundError, r"there is no checkpoint absent\.pth"),
        ("net.py:build", {"checkpoint": "."}, InputError, r"the checkpoint \. is a directory"),
        ("net.py:build", {"checkpoint": None}, InputError, "nothing gives its weights"),
        ("net.py:build", {"factory": "net.py:Heads"}, InputError, "the recipe's factory net.py:Heads"),
        ("no/such/run", {}, NotFoundError, "there is no directory no/such/run"),
        ("net.py:build", {"input": [3, 8, 8]}, ConversionError, r"does not take an input of shape \[3, 8, 8\]"),
        ("net.py:Heads", {}, InputError, r"best\.pth is not of this module"),
        ("net.py:build", {"labels": ["a", "b"]}, InputError, r"2 classes are named, the module gives \[10\] a row"),
        (".", {}, InputError, "nothing says of what module"),
        ("net.py:Heads", {"checkpoint": "heads.pth"}, InputError, "2 outputs without names"),
        ("net.py:Heads", {"checkpoint": "heads.pth", "outputs": ("digit",)}, InputError, "2 outputs, and 1 are named: digit"),
    ],
)  # fmt: skip
def test_a_source_that_cannot_be_used(project, save, source, options, error, message):
    save()
    save("Heads", "heads.pth")
    with pytest.raises(error, match=message):
        load(project, str(project) if source == "." else source, **options)
