"""`OrtMixedPrecision`: float16, and as little float32 as a tolerance allows, found by trying.

The trials are delta debugging: Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input (IEEE TSE
28(2), 2002), algorithm ddmin.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

from pydantic import Field, PositiveInt

from onnxreg.converters.onnx.graph_operators import within
from onnxreg.converters.passes import base
from onnxreg.converters.passes.base import GraphPass
from onnxreg.converters.passes.tools import graph, samples
from onnxreg.converters.passes.tools.half_graph import (
    count_halves,
    halved_operators,
    overflowing,
    refuse_halved,
    refuse_integers,
    refuse_unhalved,
    to_float16,
)
from onnxreg.schema.core.errors import ConversionError

OLIVE = ("SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization", "Relu", "Add")
"""Operators that Olive keeps in float32 if nothing else is asked: the first that a search tries."""


class MixedPrecisionParams(base.PassParams, title="Params"):
    op_block_list: tuple[str, ...] | None = None
    atol: float = Field(1e-2, gt=0)
    metric: Literal["max_abs_diff", "relative"] = "relative"
    search: bool = True
    max_trials: PositiveInt = 200
    keep_io_types: bool = True


class OrtMixedPrecision(GraphPass):
    """Convert to float16, and keep the nodes in float32 that the accuracy needs.

    Nodes that handle values beyond float16 on the sample inputs stay float32 (`overflowing` in the result), and so
    does every operator of `op_block_list`. With `search`, which others do is found by trying: none, then those that
    Olive keeps if no list is given, then every kind of operator; from the first of these that keeps the outputs within
    `atol` everything is left out again that can be, kinds of operators first, then single nodes. What remains is
    minimal: leaving out any one more breaks the tolerance (unless `max_trials` ended the search, which `minimal` in
    the result says). Without `search`, only the list stays float32 (Olive's if none is given), and the result must be
    within `atol`.

    `metric` is what `atol` limits: `max_abs_diff` of any output, or `relative`, that divided by the largest value of
    that output.
    """

    id = "OrtMixedPrecision"
    version = 3
    keeps_types = False

    Params = MixedPrecisionParams

    def requires(self, subject: Any) -> None:
        super().requires(subject)
        refuse_integers(subject, self.id)

    def apply(self, subject: Any) -> Any:
        graph.inline_functions(subject)
        graph.name_nodes(subject)
        feeds = samples.draw(subject) if self.data is None else self.data
        samples.check(feeds, subject, self.id)
        expected = samples.all_outputs(subject, feeds, "the graph that OrtMixedPrecision was given")
        beyond = overflowing(subject, feeds)
        forced = beyond | self._listed(subject)
        distances: dict[frozenset[str], float] = {}

        def within(names: frozenset[str]) -> bool:
            trial = self._convert(graph.copy(subject), names | forced)
            distances[names] = self._distance(expected, trial, feeds)
            return bool(distances[names] <= self.params.atol)

        trials = Trials(within, self.params.max_trials)
        chosen, minimal = self._search(subject, forced, trials)
        self._found = {
            "float32_nodes": sorted({*chosen, *forced}),
            "overflowing": sorted(beyond),
            "trials": trials.count,
            "minimal": minimal,
            "distance": float(f"{distances[frozenset(chosen)]:.6g}"),
        }
        return self._convert(subject, forced.union(chosen))

    def observe(self, subject: Any) -> Mapping[str, Any]:
        return {
            **super().observe(subject),
            "halves": halved_operators(subject),
            "weights": count_halves(subject),
        }

    def ensures(self, before: Mapping[str, Any], after: Any) -> dict[str, Any]:
        result = {**super().ensures(before, after), **count_halves(after)}
        refuse_halved(before["halves"], after, self._blocked(), self.id)
        if not result["float16_weights"]:
            raise ConversionError(
                f"{self.id}: the tolerance of {self.params.atol:g} leaves every weight in float32",
                "allow more with atol, or leave this pass out",
            )
        refuse_unhalved(before["weights"]["float16_weights"], result, self.id)
        return {**result, **self._found}

    def _convert(self, subject: Any, nodes: Collection[str]) -> Any:
        return to_float16(subject, None, nodes, self.params.keep_io_types)

    def _blocked(self) -> Collection[str]:
        """The operators that stay float32 whatever the search finds."""
        listed = self.params.op_block_list
        return (() if self.params.search else OLIVE) if listed is None else listed

    def _listed(self, subject: Any) -> set[str]:
        by_kind = _by_kind(subject)
        return {name for kind in self._blocked() for name in by_kind.get(kind, ())}

    def _search(self, subject: Any, forced: Collection[str], within: "Trials") -> tuple[list[str], bool]:
        """The names of the nodes that stay float32 beside the forced ones, and whether no fewer would do."""
        free = ((kind, [n for n in names if n not in forced]) for kind, names in _by_kind(subject).items())
        by_kind = {kind: names for kind, names in free if names}
        usual = [kind for kind in OLIVE if kind in by_kind and self.params.op_block_list is None]
        every = [*usual, *(kind for kind in sorted(by_kind) if kind not in usual)]

        def nodes(kinds: frozenset[str] | Sequence[str]) -> list[str]:
            return [name for kind in every if kind in kinds for name in by_kind[kind]]

        starts: list[list[str]] = [[], usual, every] if self.params.search else [[]]
        start = self._first(starts, lambda kinds: within(frozenset(nodes(kinds))))
        if not self.params.search:
            return [], False
        kinds, _ = minimize(start, lambda some: within(frozenset(nodes(some))))
        return minimize(nodes(kinds), within)

    def _first(self, starts: Sequence[list[str]], holds: Callable[[list[str]], bool]) -> list[str]:
        """The first of the sets of operators that holds; ConversionError if none does, or the trials end."""
        try:
            start = next((kinds for kinds in starts if holds(kinds)), None)
        except ExhaustedError as error:
            raise ConversionError(
                f"{self.id}: max_trials ({self.params.max_trials}) ended the search before any choice of float32 operators kept the "
                f"outputs within {self.params.atol:g}",
                "allow more with max_trials or atol",
            ) from error
        if start is None:
            raise ConversionError(
                f"{self.id}: no choice of float32 operators keeps the outputs within {self.params.atol:g}",
                "allow more with atol" if self.params.search else "let search find which operators matter",
            )
        return start

    def _distance(self, expected: Sequence[Mapping[str, Any]], trial: Any, feeds: Sequence[Any]) -> float:
        """The distance that `atol` limits; infinite if the trial does not run or gives no numbers."""
        import numpy as np

        try:
            got = samples.all_outputs(trial, feeds, "the trial")
            distances = samples.compare(expected, got, "the trial")
        except ConversionError:
            return float("inf")
        scales = {
            name: max(float(np.abs(one[name]).max(initial=0)) for one in expected) for name in distances
        }
        relative = self.params.metric == "relative"
        return max(
            (
                distance["max_abs_diff"] / (scales[name] or 1 if relative else 1)
                for name, distance in distances.items()
            ),
            default=0.0,
        )


def _by_kind(subject: Any) -> dict[str, list[str]]:
    """The names of the nodes of each operator, in the order of the graph, subgraphs included."""
    names: dict[str, list[str]] = {}
    for body in within(subject.graph):
        for node in body.node:
            names.setdefault(node.op_type, []).append(node.name)
    return names


class ExhaustedError(Exception):
    """The number of trials that were allowed is used up."""


class Trials:
    """Counts the trials of a predicate over sets of names, asks each set once, and ends after `most` of them."""

    def __init__(self, holds: Callable[[frozenset[str]], bool], most: int) -> None:
        self._holds = holds
        self._known: dict[frozenset[str], bool] = {}
        self._most = most

    @property
    def count(self) -> int:
        return len(self._known)

    def __call__(self, names: frozenset[str]) -> bool:
        """Raise ExhaustedError if this would be one trial too many."""
        if names not in self._known:
            if self.count >= self._most:
                raise ExhaustedError
            self._known[names] = self._holds(names)
        return self._known[names]


def minimize(all_names: Sequence[str], holds: Callable[[frozenset[str]], bool]) -> tuple[list[str], bool]:
    """A subset for which `holds` still does, and from which no name can be left out; it must hold for all `names`.

    The second result is False if the trials ended first: then the set holds, but may not be minimal.
    """
    names, parts = list(all_names), 2
    try:
        while names:
            if holds(frozenset()):
                return [], True
            smaller = next(
                (subset for subset in _complements(names, parts) if holds(frozenset(subset))), None
            )
            if smaller is not None:
                names, parts = smaller, max(parts - 1, 2)
            elif parts >= len(names):
                return names, True
            else:
                parts = min(2 * parts, len(names))
    except ExhaustedError:
        return names, False
    return names, True


def _complements(names: Sequence[str], parts: int) -> list[list[str]]:
    """The names without each of so many consecutive parts, the last part left out first."""
    edges = [len(names) * index // parts for index in range(parts + 1)]
    return [[*names[:start], *names[end:]] for start, end in pairwise(edges) if start < end][::-1]
