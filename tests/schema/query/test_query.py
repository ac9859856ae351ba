"""Queries and ranking: laws that hold for any artifacts. Single decisions are in the vectors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.log.state import STATES, ArtifactSummary, FileSummary, VersionSummary
from onnxreg.schema.query.expression import parse
from onnxreg.schema.query.resolve import FLOATS, FORMAT_PREFERENCE, Miss, Query, Ranking, judge

_FORMATS = st.sampled_from([*FORMAT_PREFERENCE, "webgpu", "aaa"])
_ARTIFACTS = st.builds(
    lambda *fields, recall: ArtifactSummary(*fields, recall=recall),
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


def judged(artifacts: list[ArtifactSummary], query: Query) -> Ranking:
    asked = summary(artifacts)
    return judge(
        asked, [lambda *artifact: query.misses(asked, {}, *artifact)], query.formats, query.precision
    )


def failures(ranking: Ranking) -> list[Miss | None]:
    """For each artifact the requirement that it does not meet; None if it meets all."""
    return [miss if miss and miss.code != "ranked-lower" else None for miss in ranking.misses]


def misses(query: Query, artifact: ArtifactSummary) -> bool:
    """Whether an artifact does not meet a query, asked plainly."""
    return (
        bool(query.formats and artifact.format not in query.formats)
        or query.precision not in (None, artifact.precision)
        or (query.certified and artifact.state != "certified")
        or (query.max_size is not None and artifact.size > query.max_size)
        or any(artifact.recall.get(label, -1) < least for label, least in query.min_recall.items())
        or (query.where is not None and artifact.size <= 2)
    )


@given(st.lists(_ARTIFACTS, max_size=8), _QUERIES)
def test_each_artifact_is_judged_by_itself(artifacts, query):
    """The other artifacts of the version change no verdict."""
    for artifact, failure in zip(artifacts, failures(judged(artifacts, query)), strict=True):
        assert failures(judged([artifact], query)) == [failure]
        assert (failure is not None) == misses(query, artifact)
        assert failure is None or failure.detail


@given(st.lists(_ARTIFACTS, max_size=8), _QUERIES)
def test_nothing_that_meets_everything_ranks_above_the_best(artifacts, query):
    ranking = judged(artifacts, query)
    fitting = [place for place, failed in enumerate(failures(ranking)) if failed is None]
    assert (ranking.best is None) == (not fitting)
    assert ranking.best is None or ranking.misses.count(None) == 1
    if ranking.best is None:
        return
    preference = [*(query.formats or FORMAT_PREFERENCE), *sorted({artifact.format for artifact in artifacts})]

    def rank(place: int) -> tuple[int, bool, bool, int, int, int]:
        artifact = artifacts[place]
        state = STATES.index(artifact.state) if artifact.state in STATES else 1
        named = query.formats or query.precision is not None
        unproven = artifact.precision not in FLOATS and artifact.state != "certified"
        other = not query.formats and not artifact.preferred
        return state, unproven and not named, other, preference.index(artifact.format), artifact.size, place

    assert ranking.best == min(fitting, key=rank)


def test_a_query_document():
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
    "value",
    [[], {"formats": [1]}, {"certified": 1}, {"min_recall": {"A": 2}}, {"size": 1}, {"context": 2**53}],
)
def test_a_malformed_query_document(value):
    with pytest.raises(InputError):
        Query.read(value)


def test_downloads_count_equal_files_once():
    def file(name: bytes, size: int) -> FileSummary:
        return FileSummary("companion", "p", Digest.of(name), size)

    def model(*files: FileSummary) -> ArtifactSummary:
        return ArtifactSummary("onnx", "float32", "m", Digest.of(b"m"), 1000, "unknown", files)

    shared = (file(b"x", 5), file(b"x", 5), file(b"y", 7))
    found = summary([model(), model(file(b"x", 5), file(b"z", 30)), model(file(b"m", 1000))], shared)
    assert found.download_sizes == (1012, 1042, 1012)


@pytest.mark.parametrize(
    "query", [Query(max_size=0), Query(context=0), Query(context=0, certified=True), Query()]
)
def test_a_query_comes_back_from_its_document(query):
    assert Query.read(query.to_json()) == query
