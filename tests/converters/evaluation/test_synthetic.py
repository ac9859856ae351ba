"""Whether a suite says that its texts were made up."""

import json
from pathlib import Path

import pytest

from onnxreg.converters.evaluation.suite import load

CASES: dict[str, tuple[list[object], bool | None]] = {
    "nobody says": ([None, None], None),
    "one is made up": ([None, {"source": "synthetic"}], True),
    "in other words": ([{"source": "Synthetic, by template"}], True),
    "one made up among real ones": ([{"source": "clinic"}, {"source": "synthetic"}], True),
    "all are real": ([{"source": "clinic"}, {"source": "forum"}], False),
    "one does not say": ([{"source": "clinic"}, {}], None),
    "an empty word says nothing": ([{"source": " "}], None),
    "no word says nothing": ([{"source": 7}, ["source"]], None),
}


@pytest.mark.parametrize("case", CASES)
def test_statements_of_a_suite_about_its_texts(case: str, tmp_path: Path) -> None:
    said, expected = CASES[case]
    fixtures = [
        {
            "id": number,
            "text": "Ada",
            "gold_spans": [],
            **({} if metadata is None else {"metadata": metadata}),
        }
        for number, metadata in enumerate(said)
    ]
    path = tmp_path / "suite.json"
    path.write_text(json.dumps(fixtures))
    assert load(path).synthetic is expected
