"""`OrtMixedPrecision`: float16, and as little float32 as a tolerance allows, found by trying.

The trials are delta debugging: Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input (IEEE TSE
28(2), 2002), algorithm ddmin.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from pydantic import Field

from onnxreg.converters.passes import base
from onnxreg.converters.passes.half_graph import HalfPass, kinds_of, overflowing, to_float16
from onnxreg.converters.passes.tools import graph, samples
from onnxreg.schema.core.errors import ConversionError

OLIVE = ("SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization", "Relu", "Add")
"""Operators that Olive keeps in float32 if nothing else is asked: the first that a search tries."""
MAX_TRIALS = 200


class MixedPrecisionParams(base.PassParams, title="Params"):
    op_block_list: tuple[str, ...] | None = None
    atol: float = Field(1e-2, gt=0)
    search: bool = True
    keep_io_types: bool = True


class OrtMixedPrecision(HalfPass):
    """Convert to float16, and keep the nodes in float32 that the accuracy needs.

    Nodes that handle values beyond float16 on the sample inputs stay float32 (`overflowing` in the result), and so
    does every operator of `op_block_list`. With `search`, which others do is found by trying: none, then those that
    Olive keeps if no list is given, then every kind of operator; from the first of these that keeps the outputs within
    `atol` everything is left out again that can be, kinds of operators first, then single nodes. What remains is
    minimal: leaving out any one more breaks the tolerance (unless 200 trials ended the search, which `minimal` in
    the result says). Without `search`, only the list stays float32 (Olive's if none is given), and the result must be
    within `atol`, which is in parts of the largest value of an output.
    """

    id = "OrtMixedPrecision"
    version = 4

    Params = MixedPrecisionParams

    def apply(self, subject: Any) -> Any:
        graph.inline_functions(subject)
        graph.name_nodes(subject)
        feeds = samples.draw(subject) if self.data is None else self.data
        samples.check(feeds, subject, self.id)
        expected = samples.all_outputs(subject, feeds, "the graph that OrtMixedPrecision was given")
        beyond, kinds = overflowing(subject, feeds), kinds_of(subject)
        forced = beyond.union(*(kinds.get(kind, ()) for kind in self.kept))
        distances: dict[frozenset[str], float] = {}

        def is_near(names: Iterable[str]) -> bool:
            """Try a set of nodes in float32; a set that was tried costs nothing."""
            tried = frozenset(names)
            if tried not in distances:
                if len(distances) >= MAX_TRIALS:
                    raise ExhaustedError
                trial = self._convert(graph.copy(subject), tried | forced)
                try:
                    outputs = samples.all_outputs(trial, feeds, "the trial")
                    distances[tried] = samples.relative_distance(expected, outputs, "the trial")
                except ConversionError:
                    distances[tried] = float("inf")
            return bool(distances[tried] <= self.params.atol)

        free = {kind: [name for name in names if name not in forced] for kind, names in kinds.items()}
        chosen, is_minimal = self._search({kind: names for kind, names in free.items() if names}, is_near)
        self._found = {
            "float32_nodes": sorted({*chosen, *forced}),
            "overflowing": sorted(beyond),
            "trials": len(distances),
            "minimal": is_minimal,
            "distance": float(f"{distances[frozenset(chosen)]:.6g}"),
        }
        return self._convert(subject, forced.union(chosen))

    def ensures(self, before: Mapping[str, Any], after: Any) -> dict[str, Any]:
        return {**super().ensures(before, after), **self._found}

    @property
    def kept(self) -> Collection[str]:
        listed: Collection[str] | None = self.params.op_block_list
        return (() if self.params.search else OLIVE) if listed is None else listed

    @property
    def reason(self) -> str:
        return f": the tolerance is {self.params.atol:g}"

    def _convert(self, subject: Any, nodes: Collection[str]) -> Any:
        return to_float16(subject, None, nodes, self.params.keep_io_types)

    def _search(
        self, by_kind: Mapping[str, Sequence[str]], is_near: Callable[[Iterable[str]], bool]
    ) -> tuple[list[str], bool]:
        """The names of the nodes that stay float32 beside the forced ones, and whether no fewer would do."""
        usual = [kind for kind in OLIVE if kind in by_kind and self.params.op_block_list is None]
        every = [*usual, *(kind for kind in sorted(by_kind) if kind not in usual)]

        def nodes(kinds: Collection[str]) -> list[str]:
            return [name for kind in every if kind in kinds for name in by_kind[kind]]

        starts: list[list[str]] = [[], usual, every] if self.params.search else [[]]
        try:
            start = next((kinds for kinds in starts if is_near(nodes(kinds))), None)
        except ExhaustedError:
            start = None
        if start is None:
            raise ConversionError(
                f"{self.id}: no choice of float32 operators keeps the outputs within {self.params.atol:g}",
                "allow more with atol" if self.params.search else "let search find which operators matter",
            )
        if not self.params.search:
            return [], False
        kinds, _ = minimize(start, lambda some: is_near(nodes(some)))
        return minimize(nodes(kinds), is_near)


class ExhaustedError(Exception):
    """The number of trials that are allowed is used up."""


def minimize(all_names: Sequence[str], holds: Callable[[list[str]], bool]) -> tuple[list[str], bool]:
    """A subset for which `holds` still does, and from which no name can be left out; it must hold for all `names`.

    The second result is False if the trials ended first: then the set holds, but may not be minimal.
    """
    names, parts = list(all_names), 2
    try:
        while names:
            if holds([]):
                return [], True
            edges = [len(names) * index // parts for index in range(parts + 1)]
            slices = [(start, end) for start, end in pairwise(edges) if start < end]
            subsets = ([*names[:start], *names[end:]] for start, end in reversed(slices))
            smaller = next((subset for subset in subsets if holds(subset)), None)
            if smaller is not None:
                names, parts = smaller, max(parts - 1, 2)
            elif parts >= len(names):
                return names, True
            else:
                parts = min(2 * parts, len(names))
    except ExhaustedError:
        return names, False
    return names, True
