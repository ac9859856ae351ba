"""Queries and ranking: laws that hold for any artifacts. Single decisions are in the vectors."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxreg.schema.digest import Digest
from onnxreg.schema.errors import InputError
from onnxreg.schema.query import PREFERENCE, STATES, Query, best, judge
from onnxreg.schema.summary import ArtifactSummary, FileSummary, VersionSummary
from onnxreg.schema.where import parse

_FORMATS = st.sampled_from([*PREFERENCE, "webgpu", "aaa"])
_ARTIFACTS = st.builds(
    ArtifactSummary,
    _FORMATS,
    st.sampled_from(["float32", "int8"]),
    st.sampled_from("abc"),
    st.sampled_from([Digest.of(text) for text in (b"a", b"b", b"c")]),
    st.integers(0, 20),
    st.sampled_from([*STATES, "later"]),
    recall=st.dictionaries(st.sampled_from(["A", "B"]), st.sampled_from([0.5, 0.9])),
)
_QUERIES = st.builds(
    Query,
    st.lists(_FORMATS, max_size=2).map(tuple),
    st.sampled_from([None, "int8"]),
    st.booleans(),
    st.sampled_from([None, 3, 15]),
    st.sampled_from([{}, {"A": 0.9}, {"A": 0.5, "B": 0.5}]),
    st.sampled_from([None, parse("size > 2")]),
)


def summary(artifacts: list[ArtifactSummary], files: tuple[FileSummary, ...] = ()) -> VersionSummary:
    return VersionSummary(Digest.of(b"m"), 1, tuple(artifacts), files)


def judged(artifacts: list[ArtifactSummary], query: Query) -> list[Any]:
    requirements = query.requirements(lambda artifact: {"size": artifact.size})
    return judge(summary(artifacts), requirements)


@given(st.lists(_ARTIFACTS, max_size=8), _QUERIES)
def test_the_best_meets_everything_and_nothing_that_does_ranks_above_it(
    artifacts: list[ArtifactSummary], query: Query
) -> None:
    verdicts = judged(artifacts, query)
    chosen = best(verdicts, query.formats)
    fitting = [verdict for verdict in verdicts if verdict.failed is None]
    assert (chosen is None) == (not fitting)
    assert [verdict.artifact for verdict in verdicts] == artifacts
    if chosen is None:
        return
    assert chosen.failed is None
    states = [STATES.index(each.artifact.state) if each.artifact.state in STATES else 1 for each in fitting]
    equal = [each for each, state in zip(fitting, states, strict=True) if state == min(states)]
    assert chosen in equal
    of_format = [each for each in equal if each.artifact.format == chosen.artifact.format]
    assert chosen.size == min(each.size for each in of_format)


@given(st.lists(_ARTIFACTS, max_size=8), _QUERIES)
def test_asking_for_less_never_rejects_more(artifacts: list[ArtifactSummary], query: Query) -> None:
    looser = Query(query.formats, query.precision)
    for strict, loose in zip(judged(artifacts, query), judged(artifacts, looser), strict=True):
        assert strict.failed is not None or loose.failed is None


@given(st.lists(_ARTIFACTS, max_size=8), _QUERIES)
def test_a_rejection_says_why(artifacts: list[ArtifactSummary], query: Query) -> None:
    for verdict in judged(artifacts, query):
        if verdict.failed is not None:
            assert verdict.failed.problem(verdict.artifact, verdict.size)


def test_a_query_document() -> None:
    value = {
        "formats": ["ort"],
        "precision": "int8",
        "certified": True,
        "max_size": "30MB",
        "min_recall": {"PHONE": 0.95},
        "where": "opset <= 18",
    }
    query = Query.read(value)
    assert query == Query(("ort",), "int8", True, 30_000_000, {"PHONE": 0.95}, parse("opset <= 18"))
    assert Query.read({}) == Query.read(dict.fromkeys(value)) == Query()


@pytest.mark.parametrize(
    "value", [[], {"formats": [1]}, {"certified": 1}, {"min_recall": {"A": 2}}, {"size": 1}]
)
def test_a_malformed_query_document(value: Any) -> None:
    with pytest.raises(InputError):
        Query.read(value)


def test_downloads_count_equal_files_once() -> None:
    def file(name: bytes, size: int) -> FileSummary:
        return FileSummary("companion", "p", Digest.of(name), size)

    def model(*files: FileSummary) -> ArtifactSummary:
        return ArtifactSummary("onnx", "float32", "m", Digest.of(b"m"), 1000, "unknown", files)

    shared = (file(b"x", 5), file(b"x", 5), file(b"y", 7))
    found = summary([model(), model(file(b"x", 5), file(b"z", 30)), model(file(b"m", 1000))], shared)
    assert found.download_sizes == (1012, 1042, 1012)
