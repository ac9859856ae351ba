from pathlib import Path

import pytest

from onnxreg.converters.source.source_files import read_license


@pytest.mark.parametrize(
    ("card", "stated"),
    [
        ("---\nlicense: apache-2.0\nlanguage: en\n---\n# A model\n", "apache-2.0"),
        ("---\r\nlicense: mit\r\n---\r\n", "mit"),
        ("# A model\n\n---\nlicense: mit\n---\n", None),
        ("---\nlanguage: en\n---\n", None),
        ("---\nlicense: [a, b]\n---\n", None),
        ("---\nlicense: {a\n---\n", None),
        ("---\n!!python/object/apply:os.system ['false']\n---\n", None),
        ("---\nlicense: mit\nfast: !!bool foo\n---\n", None),
        ("---\nlicense: mit\ntime: !!timestamp foo\n---\n", None),
        ("", None),
    ],
)
def test_the_licence_of_a_model_card(tmp_path: Path, card: str, stated: str | None) -> None:
    assert read_license(tmp_path) is None
    (tmp_path / "README.md").write_bytes(card.encode())
    assert read_license(tmp_path) == stated
