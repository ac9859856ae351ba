"""The contract suite of profiles that other packages bring.

    class TestWatch(ProfileContract):
        name = "watch"

        def source(self, directory):
            onnx.save(onnx.parser.parse_model(MODEL), directory / "model.onnx")
            return directory / "model.onnx"

The package is installed, so that its entry point is there; nothing but pytest is needed beside.
"""

import tempfile
from contextlib import chdir
from pathlib import Path

from onnxreg.converters.engine import steps
from onnxreg.converters.engine.plan import plan_export
from onnxreg.converters.engine.read_recipe import read_recipe
from onnxreg.converters.engine.run_plan import execute
from onnxreg.converters.profiles import profile_catalog
from onnxreg.schema.manifest.draft import Draft


class ProfileContract:
    """The tests that every profile must pass. `name` is the entry point's."""

    name: str

    def source(self, directory: Path) -> Path:
        """Something small that the profile exports, written into a directory that is empty."""
        raise NotImplementedError

    def test_it_is_found_by_its_name(self) -> None:
        assert self.name in profile_catalog.names()
        assert profile_catalog.find(self.name).package

    def test_its_document_is_a_recipe_with_a_version(self) -> None:
        profile = profile_catalog.find(self.name)
        recipe = profile.recipe()
        assert recipe.profile == self.name
        assert steps.outputs(recipe, steps.nodes(recipe, profile.document.parent))

    def test_a_recipe_of_ones_own_may_begin_with_it(self) -> None:
        profile = profile_catalog.find(self.name)
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "mine.yaml"
            path.write_text(profile.text(), "utf-8")
            assert read_recipe(path).steps == profile.recipe().steps

    def test_the_same_source_gives_the_same_bytes_and_leaves_nothing_else(self) -> None:
        with tempfile.TemporaryDirectory() as directory, chdir(directory):
            (origin := Path(directory) / "source").mkdir()
            source = self.source(origin)
            first, second = (self._export(source, Path(directory) / name) for name in ("one", "two"))
            assert first.fields == second.fields
            for path in first.paths():
                assert (first.root / path).read_bytes() == (second.root / path).read_bytes(), path
            assert sorted(path.name for path in Path(directory).iterdir()) == ["one", "source", "two"]

    def _export(self, source: Path, workspace: Path) -> Draft:
        workspace.mkdir()
        profile = profile_catalog.find(self.name)
        promises = profile.contract({}, None)
        directory = profile.document.parent
        plan = plan_export(profile.recipe(), str(source), "test/profile", directory, promises=promises)
        return execute(plan, workspace)
