"""All metrics by name: onnxreg's, and those of other packages (entry points of the group `onnxreg.metrics`).

Values equal the results of scikit-learn, SciPy and seqeval to the bit, so that these libraries can check a certificate.
"""

import re
import string
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np

from onnxreg.converters.evaluation import metric
from onnxreg.converters.evaluation.decoding import runs
from onnxreg.converters.evaluation.metric import JudgedPart, Judgement, Metric, ScoreTable
from onnxreg.converters.evaluation.rows import MOST_OBJECTS, LabelledRows
from onnxreg.converters.evaluation.suite import Fixture
from onnxreg.converters.evaluation.tokens import Floats, Integers
from onnxreg.converters.passes.samples import cosines
from onnxreg.converters.runtime.golden import INFINITE, magnitude
from onnxreg.converters.source.toolchain import PlugIns
from onnxreg.schema.core.canonical import Count, convert
from onnxreg.schema.core.errors import InputError, listing

SPANS = frozenset({"token-classification"})
VECTORS = frozenset({"pooling", "feature-extraction"})
ROWS = frozenset({"image-classification", "video-classification", "onnx"})
PIXELS, BOXES = frozenset({"image-segmentation"}), frozenset({"object-detection"})
HEARD = frozenset({"automatic-speech-recognition", "image-to-text"})
MADE = frozenset({"text2text-generation"})


def above_chance(value: float, base: float) -> float:
    """Scale a value so that a guess (`base`) has 0, and a perfect model 1."""
    return (value - base) / (1.0 - base) if base < 1.0 else 0.0


class Accuracy(Metric):
    """The share of items for which the right class is predicted (`sklearn.metrics.accuracy_score`)."""

    id = "accuracy"
    tasks = frozenset({"text-classification", "audio-classification"})
    names = ("label", "prediction")

    def obstacles(self, items: Sequence[Any], groups: int) -> Iterator[str]:
        yield from super().obstacles(items, groups)
        if len(labels := {item.label for item in items}) == 1:
            yield f"every item has the label {labels.pop()[:80]}, which a guess gets right too: nothing can be certified"

    def row(self, item: Any, prediction: Any, reference: Any, labels: Sequence[str]) -> Sequence[float]:
        return (labels.index(item.label), prediction)

    def value(self, rows: Floats) -> float:
        return float(np.mean(rows[:, 0] == rows[:, 1]))

    def skill(self, rows: Floats) -> float:
        classes, counts = np.unique(rows[:, 0], return_counts=True)
        guess = np.column_stack([rows[:, 0], np.full(len(rows), classes[counts.argmax()])])
        return above_chance(self.value(rows), self.value(guess))


class MacroF1(Accuracy):
    """The mean F1 of all classes in labels or predictions (`sklearn.metrics.f1_score`, average macro)."""

    id = "macro_f1"
    limit = 0.01

    def value(self, rows: Floats) -> float:
        classes, numbers = np.unique(rows, return_inverse=True)
        right, predicted = numbers.reshape(rows.shape).T
        hits = np.bincount(right[right == predicted], minlength=len(classes))
        return float(np.mean(2 * hits / np.bincount(numbers.ravel())))


class Top1(Metric):
    """The share of rows whose right class has the largest value (`sklearn.metrics.top_k_accuracy_score`)."""

    id = "top_1"
    tasks = ROWS
    k: ClassVar[int] = 1
    names, gold = ("rank", "classes"), "label"

    def value(self, rows: Floats) -> float:
        return float(np.mean(rows[:, 0] < self.k))

    def skill(self, rows: Floats) -> float:
        return above_chance(self.value(rows), float(np.mean(np.minimum(self.k / rows[:, 1], 1.0))))


class Top5(Top1):
    """The share of rows whose right class is among the five largest values."""

    id = "top_5"
    k = 5
    on_request = ROWS


class MeanOverlap(Metric):
    """The mean IoU (intersection over union) of the labels that occur. A label's pixels are counted over all images."""

    id = "mean_iou"
    tasks, gold = PIXELS, "label"
    limit = 0.01

    def columns(self, labels: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"{count}/{label}" for label in labels for count in ("hits", "union"))

    def value(self, rows: Floats) -> float:
        hits, union = rows.sum(axis=0).reshape(-1, 2).T
        return float(np.mean(hits[union > 0] / union[union > 0])) if union.any() else 0.0


OVERLAPS = np.linspace(0.5, 0.95, 10)
"""The thresholds of COCO's average precisions: an object is right if its IoU with a right box is at least this."""


class MeanAveragePrecision(Metric):
    """COCO's mean average precision of boxes of all sizes (`pycocotools.cocoeval`).

    A row has the number of right boxes of each class. For each object, it has the class (-1: no object), the score, and
    a number whose bit n is 1 if the object is right at `OVERLAPS[n]`.
    """

    id = "mean_average_precision"
    tasks, gold, uses = BOXES, "label", "pycocotools.cocoeval"
    limit = 0.01
    min_skill = 0.05

    def columns(self, labels: Sequence[str]) -> tuple[str, ...]:
        numbers = (f"{key}/{at}" for at in range(MOST_OBJECTS) for key in ("class", "score", "right"))
        return (*(f"boxes/{label}" for label in labels), *numbers)

    def row(self, item: Any, prediction: Any, reference: Any, labels: Sequence[str]) -> Sequence[float]:
        judge, objects = metric.library(self.uses).COCOeval(iouType="bbox"), np.full((MOST_OBJECTS, 3), -1.0)
        objects[:, 1:] = 0
        boxes, count, common = item.label, 0, {"area": 1, "ignore": 0, "iscrowd": 0}
        for label in np.unique(prediction[:, 0]):
            key, own = (0, int(label)), prediction[prediction[:, 0] == label]
            for rows, side in ((boxes[boxes[:, 0] == label], judge._gts), (own, judge._dts)):
                corners = np.hstack([rows[:, -4:-2], rows[:, -2:] - rows[:, -4:-2]]).tolist()
                scores = rows[:, 1].tolist()
                side[key] = [
                    {"id": at + 1, "bbox": corners[at], "score": scores[at], **common}
                    for at in range(len(rows))
                ]
            judge.ious = {key: judge.computeIoU(*key)}
            result = judge.evaluateImg(*key, (0, 2), MOST_OBJECTS)
            right = (result["dtMatches"] > 0).T @ 2 ** np.arange(len(OVERLAPS))
            objects[count : count + len(own)] = np.column_stack([own[:, 0], result["dtScores"], right])
            count += len(own)
        return [*np.bincount(boxes[:, 0].astype(int), minlength=len(labels)), *objects.ravel()]

    def value(self, rows: Floats) -> float:
        size = rows.shape[1] - 3 * MOST_OBJECTS
        objects = rows[:, size:].reshape(-1, 3)
        objects = objects[np.argsort(-objects[:, 1], kind="stable")]
        boxes, precisions = rows[:, :size].sum(axis=0), list[float]()
        for label in np.flatnonzero(boxes):
            right = objects[objects[:, 0] == label, 2].astype(int)
            hits = (right[:, None] >> np.arange(len(OVERLAPS)) & 1).cumsum(axis=0)
            precision = hits / np.arange(1, len(hits) + 1)[:, None]
            best = np.maximum.accumulate(precision[::-1], axis=0)[::-1]  # at this recall or a higher one
            for at in range(len(OVERLAPS)):
                first = np.searchsorted(hits[:, at] / boxes[label], np.linspace(0, 1, 101))
                precisions.append(best[first[first < len(hits)], at].sum() / 101)
        return float(np.mean(precisions)) if precisions else 0.0


class Spearman(Metric):
    """The rank correlation between the cosines of pairs of texts and the right scores (`scipy.stats.spearmanr`)."""

    id = "spearman"
    tasks = VECTORS
    limit = 0.01
    names, gold, uses = ("score", "cosine"), "score", "scipy.stats"

    def row(self, item: Any, prediction: Any, reference: Any, labels: Sequence[str]) -> Sequence[float]:
        return (item.score, *cosines(prediction[:1], prediction[1:2]))

    def value(self, rows: Floats) -> float:
        ranks = metric.library(self.uses).rankdata(rows, axis=0)
        with warnings.catch_warnings(action="ignore"):
            return float(np.corrcoef(ranks, rowvar=False)[1, 0])


class NormalizedGain(Metric):
    """The mean nDCG of the ten documents with the largest cosines (`sklearn.metrics.ndcg_score`)."""

    id = "ndcg_10"
    tasks = VECTORS
    limit = 0.01
    names, gold, uses = ("ndcg", "chance"), "documents", "sklearn.metrics"

    def row(self, item: Any, prediction: Any, reference: Any, labels: Sequence[str]) -> Sequence[float]:
        relevance = np.array([[document.relevance for document in item.documents]], dtype=np.float64)
        query = np.repeat(prediction[:1], len(item.documents), axis=0)
        similarities = cosines(query, prediction[-len(item.documents) :])[None]
        score = metric.library(self.uses).ndcg_score
        return [score(relevance, values, k=10) for values in (similarities, np.zeros_like(similarities))]

    def skill(self, rows: Floats) -> float:
        return above_chance(self.value(rows), float(rows[:, 1].mean()))


class MeanCosine(Metric):
    """The mean cosine of each text's vector with the parent's vector. Items need no right answer."""

    id = "mean_cosine"
    tasks = VECTORS
    limit = 0.01
    names = ("cosine",)

    def row(self, item: Any, prediction: Any, reference: Any, labels: Sequence[str]) -> Sequence[float]:
        return [cosines(prediction, reference).mean()]


class OutputCosine(MeanCosine):
    """The mean cosine of each row's output with the parent's output. For several outputs, the lowest cosine counts."""

    id = "output_cosine"
    tasks = frozenset(LabelledRows.tasks) | PIXELS | BOXES | {"image-text-to-text"}

    def row(self, item: Any, prediction: Any, reference: Any, labels: Sequence[str]) -> Sequence[float]:
        """Return the lowest cosine of any output: 0 if shapes or masks differ, 1 if both vectors are zero."""
        if prediction.shape != reference.shape:
            return [0.0]
        is_masked, size = np.abs(reference) >= INFINITE, magnitude(reference)
        if (prediction[is_masked] * np.sign(reference[is_masked]) < size).any():
            return [0.0]
        prediction, reference = (np.where(is_masked, 0, side) for side in (prediction, reference))
        both_zero = ~prediction.any(axis=1) & ~reference.any(axis=1)
        near = np.nan_to_num(cosines(prediction, reference), nan=0.0)
        return [np.where(both_zero, 1.0, near).min()]

    def supports(self, items: Sequence[Any]) -> bool:
        return all(item.label is None for item in items)


class ExactMatch(Metric):
    """The share of predictions that equal a right answer. Case, punctuation and articles are ignored."""

    id = "exact_match"
    tasks = frozenset({"question-answering"}) | HEARD | MADE
    on_request = HEARD | MADE
    limit = 0.01

    def row(self, item: Any, prediction: Any, reference: Any, labels: Sequence[str]) -> Sequence[float]:
        words = answer_words(prediction)
        return [max(self.score(answer_words(answer), words) for answer in item.answers or ("",))]

    def score(self, answer: list[str], prediction: list[str]) -> float:
        return float(answer == prediction)


class AnswerF1(ExactMatch):
    """The mean F1 of all predictions. A prediction's words are compared with each right answer; the best F1 counts."""

    id = "answer_f1"
    tasks, on_request = frozenset({"question-answering"}), frozenset()

    def score(self, answer: list[str], prediction: list[str]) -> float:
        if not answer or not prediction:
            return float(answer == prediction)
        common = (Counter(answer) & Counter(prediction)).total()
        return 2 * common / (len(answer) + len(prediction))


def answer_words(text: str) -> list[str]:
    """Return an answer's words in lower case, without punctuation and articles (SQuAD, 2016, section 6.1)."""
    plain = text.lower().translate(str.maketrans("", "", string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()


class WordErrorRate(Metric):
    """Wrong, missing and added words per word of the right text (`jiwer.wer`). Case and punctuation are ignored."""

    id = "word_error_rate"
    tasks, uses = HEARD, "jiwer"
    direction = "lower"
    limit = 0.01
    names = ("errors", "words")

    def row(self, item: Any, prediction: Any, reference: Any, labels: Sequence[str]) -> Sequence[float]:
        jiwer = metric.library(self.uses)
        spaced = (jiwer.RemoveMultipleSpaces(), jiwer.Strip(), jiwer.ReduceToListOfListOfWords())
        words = jiwer.Compose([jiwer.ToLowerCase(), jiwer.RemovePunctuation(), *spaced])
        alignment = jiwer.process_words(item.text, prediction, words, words)
        missed = alignment.substitutions + alignment.deletions
        return (missed + alignment.insertions, missed + alignment.hits)

    def value(self, rows: Floats) -> float:
        return float(rows[:, 0].sum() / max(rows[:, 1].sum(), 1.0))

    def skill(self, rows: Floats) -> float:
        return 1.0 - self.value(rows)


class CharacterF(Metric):
    """The mean of the texts' chrF, from 0 to 1 (`sacrebleu.sentence_chrf` divided by 100)."""

    id = "chrf"
    tasks, uses = MADE, "sacrebleu"
    limit = 0.01

    def row(self, item: Any, prediction: Any, reference: Any, labels: Sequence[str]) -> Sequence[float]:
        return [metric.library(self.uses).sentence_chrf(prediction, [item.target]).score / 100]


class Perplexity(Metric):
    """The exponential of a token's mean negative log-likelihood, in nats. The loss 0.05 is 5 % above the parent."""

    id = "perplexity"
    tasks = frozenset({"text-generation"})
    direction = "lower"
    limit = 0.05
    min_groups = 100
    names = ("nats", "tokens", "vocabulary")

    def value(self, rows: Floats) -> float:
        return float(np.exp(rows[:, 0].sum() / rows[:, 1].sum()))

    def loss(self, parent: float, value: float) -> float:
        return value / parent - 1.0

    def skill(self, rows: Floats) -> float:
        return float(1.0 - rows[:, 0].sum() / rows[:, 1].sum() / np.log(rows[0, 2]))


MAX_RECALL_LOSS = 0.005
MIN_GOLD_SPANS = round(1 / MAX_RECALL_LOSS)
"""A label with fewer gold spans gets a warning, because one lost span may exceed the limit."""
PER_LABEL = ("gold", "hits", "predicted", "spans")
"""The counts for each label in a text: gold characters, gold characters found, predicted characters, gold spans."""


class MinimumEvidence(msgspec.Struct, frozen=True):
    """The minimum for judging a label: a number of gold characters, and the parent's recall above chance."""

    min_gold_chars: Annotated[int, msgspec.Meta(ge=1)] = 200
    min_parent_recall: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.5

    @classmethod
    def read(cls, settings: Mapping[str, Any]) -> "MinimumEvidence":
        return convert(dict(settings), cls, "the minimum evidence of character_recall")


class CharacterRecall(Metric):
    """The share of gold characters to which a prediction gives the right label. Each label is judged by itself.

    The loss is the largest loss of a label. A label is not judged if it has too little gold, or if the parent's
    informedness (Youden's J) for it is too low. Informedness is the recall minus the share of other characters that
    wrongly get the label.
    """

    id = "character_recall"
    tasks = SPANS
    rule = "G4/interval"
    limit = MAX_RECALL_LOSS

    def columns(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ("characters", *(f"{count}/{label}" for label in labels for count in PER_LABEL))

    def row(self, item: Fixture, prediction: Any, reference: Any, labels: Sequence[str]) -> Sequence[float]:
        counts = np.zeros((len(labels), len(PER_LABEL)), dtype=np.int64)
        counts[:, 2] = np.bincount(prediction[prediction >= 0], minlength=len(labels))
        for span in item.spans:
            if span.label in labels:
                number = labels.index(span.label)
                hits = np.count_nonzero(prediction[span.start : span.end] == number)
                counts[number] += (span.end - span.start, hits, 0, 1)
        return [len(item.text), *counts.ravel().tolist()]

    def value(self, rows: Floats) -> float:
        gold, hits = (rows[:, 1 + index :: len(PER_LABEL)].sum() for index in (0, 1))
        return float(hits / gold) if gold else 0.0

    def check(self) -> None:
        if self.limit != MAX_RECALL_LOSS:
            message = f"{self.id} has the limit of G4, {MAX_RECALL_LOSS}, not {self.limit:g}"
            raise InputError(message, "leave the limit out, or judge by span_f1")
        if unknown := sorted(self.settings.keys() - {*MinimumEvidence.__struct_fields__}):
            message = f"{self.id} has no setting {unknown[0][:80]!r}"
            raise InputError(message, "it has min_gold_chars and min_parent_recall")
        MinimumEvidence.read(self.settings)

    def warnings(self, items: Sequence[Fixture]) -> Iterator[str]:
        spans = Counter(span.label for item in items for span in item.spans)
        if few := sorted(label for label, count in spans.items() if count < MIN_GOLD_SPANS):
            yield (
                f"the suite has fewer than {MIN_GOLD_SPANS} gold spans of {listing(few)}: one lost span is a loss of the "
                "limit, so the verdict may be unclear; --dry-run judges without publishing"
            )

    def obstacles(self, items: Sequence[Fixture], groups: int) -> Iterator[str]:
        least, characters = MinimumEvidence.read(self.settings).min_gold_chars, Counter[str]()
        for span in (span for item in items for span in item.spans):
            characters[span.label] += span.end - span.start
        if few := sorted(label for label, count in characters.items() if count < least):
            yield (
                f"the suite has fewer than {least} gold characters of {listing(few)}: what they lose cannot be judged, so "
                "nothing can be certified"
            )

    def judge(self, table: ScoreTable, settings: Mapping[str, Any]) -> Judgement:
        minimum, characters = MinimumEvidence.read(settings), int(table.parent[:, 0].sum())
        parts, drawn = list[JudgedPart](), self.resampled(table)
        for name, parent, candidate, losses in zip(*_by_label(table), drawn.T, strict=True):
            gold, hits, predicted, spans = parent.sum(axis=0).tolist()
            if not gold:
                parts.append(JudgedPart(name, spans))
                continue
            kept_hits, outside = int(candidate[:, 1].sum()), characters - gold
            alarms = (predicted - hits) / outside if outside else 1.0
            recall, loss, doubts = hits / gold, (hits - kept_hits) / gold, []
            if gold < minimum.min_gold_chars:
                doubts.append(f"{name} has {gold} gold characters, {minimum.min_gold_chars} are needed")
            elif recall - alarms < minimum.min_parent_recall:
                doubts.append(
                    f"the parent itself finds too little of {name}: recall {recall:.4f}, false alarms on {alarms:.4f} of "
                    f"the other characters, the difference must reach {minimum.min_parent_recall}"
                )
            groups = len(np.unique(table.groups[parent[:, 0] > 0]))
            interval = metric.percentiles(losses) if groups > 1 else None
            state = None if doubts else metric.judge_loss(loss, interval, self.limit, settings)
            losing = f"{name} loses {loss:.3g} of its recall"
            parts.append(
                JudgedPart(name, spans, recall, kept_hits / gold, loss, losing, doubts, interval, state)
            )
        judged = [number for number, part in enumerate(parts) if part.state is not None]
        largest = max((max(parts[number].loss or 0.0, 0.0) for number in judged), default=None)
        worst = np.nan_to_num(drawn[:, judged], nan=0.0).max(axis=1, initial=0.0)
        without = [part.name for part in parts if part.loss is None]
        has_gold = len(without) < len(parts)
        lack = "has no gold for any label of the model" if len(table) else "is empty"
        doubts = [] if has_gold else [f"the evaluation suite {lack}"]
        if others := convert(settings.get("other_labels", {}), dict[str, Count]):
            doubts.append(metric.unmatched_message(others, [part.name for part in parts]))
        certified = (
            f"no label loses {self.limit} or more; judged: {listing([parts[number].name for number in judged])}, each with at "
            f"least {minimum.min_gold_chars} gold characters and a parent's recall above chance of at least "
            f"{minimum.min_parent_recall}"
        )
        ends = [(part.name, part.interval[1]) for part in parts if part.interval]
        wide = [f"{name} (to {end:.3g})" for name, end in ends if end >= self.limit]
        proof = [certified, *([f"the interval is above the limit: {listing(wide)}"] if wide else [])]
        notes = [f"no gold, so not judged: {listing(without)}"] if without and has_gold else []
        if excluded := convert(settings.get("excluded_labels", {}), dict[str, Any]):
            notes.append(f"excluded by name, so not judged: {listing(list(excluded))}")
        interval = metric.percentiles(worst) if judged else None
        return self.judgement(table, settings, parts, largest, interval, doubts, proof, notes)

    def resampled(self, table: ScoreTable) -> Floats:
        """Return the loss of each label in each resample, float64 `[resamples, labels]`; NaN without gold."""
        names, parents, candidates = _by_label(table)
        labels, result = len(names), np.full((metric.RESAMPLES, len(names)), np.nan)
        if not labels or not table.group_count:
            return result
        counts = np.hstack([parents[:, :, 0].T, (parents[:, :, 1] - candidates[:, :, 1]).T])
        rows = np.zeros((table.group_count, 2 * labels), dtype=np.int64)
        np.add.at(rows, table.groups, counts)
        rows, size = rows[np.lexsort(rows.T)], len(rows)
        for losses, chosen in zip(result, metric.draws(np.arange(size)), strict=True):
            total = np.bincount(chosen, minlength=size) @ rows
            np.divide(total[labels:], total[:labels], out=losses, where=total[:labels] > 0)
        return result

    def checks(self, judgement: Judgement, name: str, dataset: str) -> list[dict[str, Any]]:
        """Return a check of the recall for each label, and a check of the largest loss."""
        common = {"metric": self.id, "dataset": dataset}
        checks = [
            {
                **common,
                "name": f"{self.id}/{part.name}",
                "value": part.value,
                "verdict": metric.CHECKED[part.state or "unknown"],
                "samples": part.samples,
            }
            for part in judgement.parts
        ]
        record = judgement.record
        largest = {
            **common,
            "name": "quant_recall_delta",
            "value": record.loss,
            "verdict": metric.CHECKED[record.state],
            "limit": MAX_RECALL_LOSS,
            "samples": sum(part.samples for part in judgement.parts if part.state is not None),
            **({} if record.interval is None else {"interval": list(record.interval)}),
        }
        return [*checks, largest]


def _by_label(table: ScoreTable) -> tuple[list[str], Integers, Integers]:
    """Return the labels, and the parent's and candidate's counts (`PER_LABEL`), int64 `[labels, items, counts]`."""
    names = [name.partition("/")[2] for name in table.columns[1 :: len(PER_LABEL)]]
    shape = (len(table), len(names), len(PER_LABEL))
    parent, candidate = (
        side[:, 1:].astype(np.int64).reshape(shape).transpose(1, 0, 2)
        for side in (table.parent, table.candidate)
    )
    return names, parent, candidate


class SpanF1(Metric):
    """The F1 of spans with right labels and ends (`seqeval`, strict, IOB2). Of overlapping gold, the first counts."""

    id = "span_f1"
    tasks = on_request = SPANS
    limit = 0.01
    names = ("hits", "predicted", "gold")

    def row(self, item: Fixture, prediction: Any, reference: Any, labels: Sequence[str]) -> Sequence[float]:
        gold, is_covered = set(), np.zeros(len(item.text), dtype=bool)
        for span in sorted(item.spans, key=lambda span: (span.start, -span.end)):
            if not is_covered[span.start : span.end].any():
                is_covered[span.start : span.end] = True
                gold.add((span.start, span.end, span.label))
        predicted = {(start, end, labels[number]) for start, end, number in runs(prediction)}
        return (len(gold & predicted), len(predicted), len(gold))

    def value(self, rows: Floats) -> float:
        hits, predicted, gold = rows.sum(axis=0).tolist()
        return 2 * hits / (predicted + gold) if predicted + gold else 0.0


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
METRICS: tuple[type[Metric], ...] = (
    *(CharacterRecall, SpanF1, Accuracy, MacroF1, ExactMatch, AnswerF1, WordErrorRate, CharacterF),
    *(
        Spearman,
        NormalizedGain,
        MeanCosine,
        Top1,
        Top5,
        MeanOverlap,
        MeanAveragePrecision,
        OutputCosine,
        Perplexity,
    ),
)


def _accept(entry: EntryPoint, kind: Any) -> type[Metric] | None:
    is_named = issubclass(kind, Metric) and kind.id == entry.name and NAME.fullmatch(entry.name)
    return kind if is_named else None


CATALOG = PlugIns("onnxreg.metrics", "a metric", {kind.id: kind for kind in METRICS}, _accept)
find, names = CATALOG.find, CATALOG.names
