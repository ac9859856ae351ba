"""The web client's tagger reads the marks of tags as `reg` does."""

import json
import shutil
import subprocess
from itertools import combinations
from pathlib import Path

import pytest

from onnxreg.converters.evaluation.tokens import tag_scheme

NODE = shutil.which("node")
TAGS = ("B-A", "i-a", "I-A", "E-A", "M-A", "S-C", "A_B", "A_I", "B_CELL", "T_CELL", "NAME", "E-MAIL", "o")
LISTS = [("O", *tags) for size in (1, 2, 3) for tags in combinations(TAGS, size)]


@pytest.mark.skipif(NODE is None, reason="there is no node")
def test_the_tagger_reads_tags_as_reg_does(tmp_path: Path) -> None:
    assert NODE is not None
    (tmp_path / "tags.json").write_text(json.dumps(LISTS))
    command = [NODE, str(Path(__file__).with_name("tags.mjs")), str(tmp_path / "tags.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for tags, pairs in zip(LISTS, json.loads(done.stdout), strict=True):
        scheme = tag_scheme(tags)
        labels = [None if pair is None else pair[1] for pair in pairs]
        assert labels == [None if number < 0 else scheme.names[number] for number in scheme.label], tags
        marks = ["" if pair is None else pair[0] for pair in pairs]
        assert [mark in ("B", "S", "U") for mark in marks] == list(scheme.begins), tags
        assert [mark in ("E", "L", "S", "U") for mark in marks] == list(scheme.ends), tags
