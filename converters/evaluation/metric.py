"""Metrics: figures about a model's predictions on a suite.

The bootstrap gives confidence intervals: whole groups of items are drawn with replacement, because items of a group
depend on each other (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, ch. 8).
"""

import csv
import io
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from typing import Any, ClassVar, Literal

import numpy as np

from onnxreg.converters.evaluation.tokens import Floats, Integers
from onnxreg.converters.source.toolchain import distributions
from onnxreg.schema.core.errors import ConversionError, InputError, RegError, listing, missing_extra
from onnxreg.schema.gates.statements import MetricRecord, State

GROUP, PARENT, CANDIDATE = "group", "parent:", "candidate:"
"""The first column of a table of item scores, and the prefixes of the other columns."""

RESAMPLES = 1000
SEED = 0
LEVEL = 0.95
Interval = tuple[float, float]


@dataclass(frozen=True)
class ScoreTable:
    """The scores of the parent and the candidate by a metric, for each item.

    `parent` and `candidate` are float64 `[items, columns]`, `groups` are int64 `[items]`. Rows and groups are sorted,
    so the table does not show the order of the suite.
    """

    columns: tuple[str, ...]
    parent: Floats
    candidate: Floats
    groups: Integers

    @classmethod
    def of(
        cls, columns: Sequence[str], parent: Floats, candidate: Floats, groups: Iterable[int]
    ) -> "ScoreTable":
        """Make a table of the scores of items. `groups` has the group number of each item."""
        width = len(columns)
        rows_by_group: dict[int, list[list[float]]] = {}
        for number, row in zip(groups, np.hstack([parent, candidate]).tolist(), strict=True):
            rows_by_group.setdefault(number, []).append(row)
        sorted_groups = sorted(sorted(rows) for rows in rows_by_group.values())
        rows = np.array([row for group in sorted_groups for row in group], dtype=np.float64)
        rows = rows.reshape(-1, 2 * width)
        owners = [number for number, group in enumerate(sorted_groups) for _ in group]
        return cls(tuple(columns), rows[:, :width], rows[:, width:], np.array(owners, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def group_count(self) -> int:
        return int(self.groups[-1]) + 1 if len(self) else 0

    def encode(self) -> bytes:
        """Return the table as CSV (RFC 4180, line feeds): `group`, `parent:<column>`..., `candidate:<column>`...."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(
            [GROUP, *(f"{prefix}{column}" for prefix in (PARENT, CANDIDATE) for column in self.columns)]
        )
        rows = np.column_stack([self.groups, self.parent, self.candidate]).tolist()
        writer.writerows([_text(value) for value in row] for row in rows)
        return out.getvalue().encode()

    @classmethod
    def decode(cls, data: bytes, label: str) -> "ScoreTable":
        """Read a table that `encode` made. Raise InputError about the file `label` if it is malformed."""
        try:
            header, *rows = csv.reader(io.StringIO(data.decode()), strict=True)
            numbers = np.array([[float(value) for value in row] for row in rows], dtype=np.float64)
            width = (len(header) - 1) // 2
            columns = tuple(name.removeprefix(PARENT) for name in header[1 : 1 + width])
            numbers = numbers.reshape(-1, len(header))
            sides = (numbers[:, 1 : 1 + width], numbers[:, 1 + width :])
            table = cls.of(columns, *sides, numbers[:, 0].astype(np.int64).tolist())
            is_same = table.encode() == data and bool(np.isfinite(numbers).all())
        except (ValueError, csv.Error, UnicodeDecodeError, OverflowError):
            is_same = False
        if not is_same:
            raise InputError(f"{label} is not a table of item scores as an export writes it")
        return table


def draws(groups: Integers) -> Iterator[Integers]:
    """Yield the row indices of each resample: all rows of groups that are drawn with replacement."""
    generator, count = np.random.RandomState(SEED), int(groups[-1]) + 1
    starts = np.searchsorted(groups, np.arange(count + 1))
    rows = np.arange(len(groups))
    for _ in range(RESAMPLES):
        chosen = generator.randint(0, count, count, dtype=np.int64)
        if count == len(groups):
            yield chosen
        else:
            yield np.concatenate([rows[starts[group] : starts[group + 1]] for group in chosen])


def percentiles(values: Floats) -> Interval | None:
    """Return the central 95 % interval of values, without NaN. Return None for no values or an infinite value."""
    values = values[~np.isnan(values)]
    if not len(values) or np.isinf(values).any():
        return None
    low, high = np.quantile(values, (0.025, 0.975)).tolist()
    return low, high


def _text(value: float) -> Any:
    return int(value) if math.isfinite(value) and value == int(value) and abs(value) < 2**53 else repr(value)


CHECKED = {"certified": "pass", "refused": "fail", "unknown": "unknown"}


class EvaluationError(RegError, family=ConversionError.family):
    """The source or a metric fails. This affects every artifact, so a search ends."""


@dataclass(frozen=True)
class JudgedPart:
    """A part that a metric judges separately, such as a label. Most metrics have a single part, called "".

    Figures are None if there is nothing to measure. `losing` describes the loss in words. A part with `doubts` is not
    judged: its `state` is None.
    """

    name: str
    samples: int
    parent: float | None = None
    value: float | None = None
    loss: float | None = None
    losing: str = ""
    doubts: Sequence[str] = ()
    interval: Interval | None = None
    state: State | None = None

    @property
    def bounds(self) -> str:
        return "95 %: {:.3g} to {:.3g}".format(*self.interval) if self.interval else "it has no interval"


@dataclass(frozen=True)
class Judgement:
    """A metric's judgement on an artifact: its record, its parts, and the item scores."""

    record: MetricRecord
    parts: tuple[JudgedPart, ...]
    table: ScoreTable = field(compare=False)


def judge_loss(loss: float, interval: Interval | None, limit: float, settings: Mapping[str, Any]) -> State:
    """Certify a loss below the limit. Refuse a loss whose whole interval is at or above it. Otherwise: "unknown".

    With the setting `margin`, certify a loss only if its whole interval is below the limit.
    """
    if loss < limit:
        is_wide = interval is None or interval[1] >= limit
        return "unknown" if is_wide and settings.get("margin") else "certified"
    return "refused" if interval is not None and interval[0] >= limit else "unknown"


def unmatched_message(labels: Mapping[str, int], names: Sequence[str] = ()) -> str:
    """Return the message about gold `labels` (with their spans' counts) that a model with the labels `names` lacks."""
    listed = listing([f"{name[:60]} ({count} spans)" for name, count in labels.items()])
    own = f"; the model's labels: {listing(names)}" if names else ""
    return (
        f"gold labels that the model does not have: {listed}{own}; map each to one of the model's, or exclude it by name: "
        "--label-map GOLD=LABEL, --label-map GOLD="
    )


def combine(records: Sequence[MetricRecord]) -> tuple[State, tuple[str, ...]]:
    """Return the worst state of several metrics, and all reasons, those of the worst state first."""
    order: tuple[State, ...] = ("refused", "unknown", "certified")
    ranked = sorted(records, key=lambda record: order.index(record.state))
    return ranked[0].state, tuple(reason for record in ranked for reason in record.reasons)


@contextmanager
def metric_errors(metric: Any) -> Iterator[None]:
    """A context for a metric's code. Any error but a RegError becomes an EvaluationError about the metric.

    The message leaves out the error's text, which may quote the suite.
    """
    try:
        yield
    except RegError:
        raise
    except Exception as error:
        frames = extract_tb(error.__traceback__)
        module = getattr(sys.modules.get(metric.__module__), "__file__", None)
        frame = next((frame for frame in reversed(frames) if frame.filename == module), frames[-1])
        location = f"{type(error).__name__} in {Path(frame.filename).name}, line {frame.lineno}"
        message = f"the metric {metric.id} fails: {location}"
        raise EvaluationError(message, "report it to the author of the metric") from error


class Metric:
    """A figure about a model on a suite.

    `row` turns a prediction into numbers, and `value` turns rows into the figure. `names` are the columns of a row. A
    change of these computations needs a new `version`. `rule` judges a loss; `limit` is its default limit. `tasks` are
    the tasks whose predictions the metric reads. If the suite has fewer than `min_groups` independent items, or the
    parent has less skill than `min_skill`, the verdict is "unknown".
    """

    id: ClassVar[str]
    names: ClassVar[tuple[str, ...]] = ("score",)
    gold: ClassVar[str | None] = None
    """The attribute of an item with the right answer; None if the metric needs none."""
    version: ClassVar[int] = 1
    rule: ClassVar[str] = "loss/interval"
    tasks: ClassVar[frozenset[str]]
    direction: ClassVar[Literal["higher", "lower"]] = "higher"
    limit: float = 0.005
    min_groups: ClassVar[int] = 200
    min_skill: ClassVar[float] = 0.2
    on_request: ClassVar[frozenset[str]] = frozenset()
    """The tasks for which the metric is used only on request."""
    uses: ClassVar[str] = "numpy"

    def __init__(self, limit: float | None = None, settings: Mapping[str, Any] | None = None) -> None:
        """Raise InputError if the rule does not accept the limit or a setting."""
        self.limit, self.settings = self.limit if limit is None else limit, dict(settings or {})
        self.check()

    @property
    def package(self) -> str | None:
        """The Python package that defines the metric; None for onnxreg's metrics."""
        top = type(self).__module__.partition(".")[0]
        return None if top == "onnxreg" else min(distributions().get(top, ()), default=top)

    def columns(self, labels: Sequence[str]) -> tuple[str, ...]:
        return self.names

    def row(self, item: Any, prediction: Any, reference: Any, labels: Sequence[str]) -> Sequence[float]:
        """Return an item's scores by column; by default, the prediction. `reference` is the parent's prediction."""
        return [float(number) for number in np.ravel(prediction)]

    def value(self, rows: Floats) -> float:
        """Reduce rows (a float64 array `[rows, columns]`) to the value: by default, the mean of the first column."""
        return float(rows[:, 0].mean())

    def skill(self, rows: Floats) -> float:
        """Return the skill of the model that these rows score: 0 for a guess, 1 for a perfect model."""
        return self.value(rows)

    def loss(self, parent: float, value: float) -> float:
        """Return the loss of a candidate: above 0 if it is worse than the parent."""
        return parent - value if self.direction == "higher" else value - parent

    def supports(self, items: Sequence[Any]) -> bool:
        return self.gold is None or all(getattr(item, self.gold) is not None for item in items)

    def check(self) -> None:
        """Raise InputError if the rule does not accept the limit or a setting."""
        if self.settings:
            raise InputError(f"the metric {self.id} has no setting {next(iter(self.settings))[:80]!r}")

    def warnings(self, items: Sequence[Any]) -> Iterator[str]:
        """Yield a warning if a single item of this suite can decide the verdict."""
        return iter(())

    def obstacles(self, items: Sequence[Any], groups: int) -> Iterator[str]:
        """Yield the reasons why no model can be certified on the suite."""
        if groups < self.min_groups:
            yield (
                f"the suite has {groups} independent items, {self.id} needs {self.min_groups}: nothing can be certified"
            )

    def scores(
        self,
        items: Sequence[Any],
        predictions: Sequence[Any],
        reference: Sequence[Any],
        labels: Sequence[str],
    ) -> Floats:
        """Return the scores of all items, float64 `[items, columns]`. Raise an error if a score is NaN or missing."""
        columns = self.columns(labels)
        rows = np.zeros((len(items), len(columns)))
        for number, sides in enumerate(zip(items, predictions, reference, strict=True)):
            row = np.asarray(self.row(*sides, labels), dtype=np.float64)
            if row.shape != (len(columns),):
                raise EvaluationError(
                    f"the metric {self.id} gives scores of shape {row.shape}, expected {(len(columns),)}"
                )
            rows[number] = row
        if not np.isfinite(rows).all():
            message = f"the metric {self.id} gives NaN or infinity for an item"
            raise ConversionError(message, "look at the suite")
        return rows

    def judge(self, table: ScoreTable, settings: Mapping[str, Any]) -> Judgement:
        """Judge an artifact by its scores. Raise ConversionError if the metric gives NaN or infinity.

        `settings` has the metric's `settings`, and facts about the suite such as `other_labels`.
        """
        if not len(table):
            return self.judgement(table, settings, doubts=["the suite has no items"])
        parent, value = (self._number(self.value, rows) for rows in (table.parent, table.candidate))
        loss, skill = self._number(self.loss, parent, value), self._number(self.skill, table.parent)
        losses = (
            self.loss(self.value(table.parent[rows]), self.value(table.candidate[rows]))
            for rows in draws(table.groups)
        )
        groups, doubts = table.group_count, []
        interval = percentiles(np.fromiter(losses, np.float64)) if groups > 1 else None
        if groups < self.min_groups:
            doubts.append(f"the suite has {groups} independent items, {self.id} needs {self.min_groups}")
        if skill < self.min_skill:
            doubts.append(
                f"the parent itself is hardly better than a guess: its skill by {self.id} is {skill:.3g}, at least "
                f"{self.min_skill:g} is needed"
            )
        if settings.get("other_labels"):
            doubts.append(unmatched_message(settings["other_labels"]))
        state = None if doubts else judge_loss(loss, interval, self.limit, settings)
        losing = f"{self.id} loses {loss:.3g} (from {parent:.4g} to {value:.4g})"
        proof = [f"{losing}, the limit is below {self.limit:g}"]
        if interval and interval[1] >= self.limit:
            proof.append(f"its interval is above the limit: it reaches {interval[1]:.3g}")
        part = JudgedPart("", len(table), parent, value, loss, losing, doubts, interval, state)
        return self.judgement(table, settings, [part], loss, interval, proof=proof)

    def judgement(
        self,
        table: ScoreTable,
        settings: Mapping[str, Any],
        parts: Sequence[JudgedPart] = (),
        loss: float | None = None,
        interval: Interval | None = None,
        doubts: Sequence[str] = (),
        proof: Sequence[str] = (),
        notes: Sequence[str] = (),
    ) -> Judgement:
        """Judge an artifact. A refused part makes it refused; an unknown part or a doubt makes it unknown.

        `loss` and `interval` are of the whole artifact. `proof` has the reasons to give if it is certified, and `notes`
        the reasons to give with any verdict.
        """
        limit = self.limit
        lost = [f"{part.losing}, the limit is below {limit:g}" for part in parts if part.state == "refused"]
        unsure = [
            f"unclear: {part.losing} ({part.bounds}), the limit is below {limit:g}: a larger suite decides"
            for part in parts
            if part.state == "unknown"
        ]
        unsure += [*(doubt for part in parts for doubt in part.doubts), *doubts]
        is_measured = any(part.loss is not None for part in parts)
        parent, value = (
            float(self.value(rows)) if is_measured else None for rows in (table.parent, table.candidate)
        )
        more: dict[str, Any] = {"interval": interval, "package": self.package}
        record = MetricRecord(
            metric=self.id,
            version=self.version,
            direction=self.direction,
            rule=self.rule,
            limit=limit,
            parent=parent,
            value=value,
            loss=loss,
            samples=len(table),
            groups=table.group_count,
            state="refused" if lost else "unknown" if unsure else "certified",
            reasons=(*(lost + unsure or proof), *notes),
            settings=dict(settings),
            **{key: value for key, value in more.items() if value is not None},
        )
        return Judgement(record, tuple(parts), table)

    def checks(self, judgement: Judgement, name: str, dataset: str) -> list[dict[str, Any]]:
        """Return two checks for the manifest, in JSON form: the value, and the loss with its limit.

        `name` names the suite and the metric, such as `sts/spearman`. `dataset` is the digest of the suite.
        """
        record = judgement.record
        common = {"verdict": CHECKED[record.state], "samples": record.samples, "dataset": dataset}
        value = {"name": name, "metric": self.id, "value": record.value, "direction": self.direction}
        loss = {
            "name": f"{name}/loss",
            "metric": f"{self.id}_loss",
            "value": record.loss,
            "limit": record.limit,
            "direction": "lower",
            **({} if record.interval is None else {"interval": list(record.interval)}),
        }
        return [value | common, loss | common]

    def _number(self, compute: Callable[..., float], *values: Any) -> float:
        number = float(compute(*values))
        if not math.isfinite(number):
            raise ConversionError(f"the metric {self.id} gives {number} on this suite", "look at the suite")
        return number


def library(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise missing_extra(module.partition(".")[0], "evaluate", "this metric") from error
