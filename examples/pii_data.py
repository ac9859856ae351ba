"""Make synthetic sentences with personal data, and mark the spans of the data.

Every value is random or from a list of words, so that a match with a real person is chance. Training text and
held-out text share no value: their words differ, and only in held-out text are numbers and dates multiples of seven.
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from string import Formatter

from pii_words import HELD_OUT, TRAINING, Vocabulary

LABELS = ("ADDRESS", "DATE", "EMAIL", "FIRSTNAME", "LASTNAME", "MRN", "PHONE", "SSN")
HELD_OUT_FORMAT_SHARE = 0.15
"""The share of the dates and numbers of held-out text that have a format which training text never has."""


@dataclass(frozen=True)
class Span:
    """A labelled part of a text, from `start` to before `end`, in code points."""

    start: int
    end: int
    label: str


@dataclass(frozen=True)
class Sentence:
    text: str
    spans: tuple[Span, ...]
    template: int


@dataclass(frozen=True)
class Source:
    """The words and the random numbers from which training text, or held-out text, is made."""

    words: Vocabulary
    rng: random.Random

    def number(self, low: int, high: int) -> int:
        """Return a random number: a multiple of seven for held-out text, any other number for training text."""
        while True:
            value = self.rng.randint(low, high)
            if (value % 7 == 0) == self.words.held_out:
                return value

    def written(self, formats: tuple[str, ...], unseen: str, *parts: object) -> str:
        """Join the parts in one of the formats or, sometimes in held-out text, in the format `unseen`."""
        if self.words.held_out and self.rng.random() < HELD_OUT_FORMAT_SHARE:
            return unseen.format(*parts)
        return self.rng.choice(formats).format(*parts)


def training_sentences(count: int, seed: int) -> list[Sentence]:
    return _distinct(Source(TRAINING, random.Random(seed)), count)


def held_out_sentences(count: int, seed: int) -> list[Sentence]:
    return _distinct(Source(HELD_OUT, random.Random(seed)), count)


def golden(sentences: list[Sentence]) -> str:
    """Return the sentences as an evaluation suite in OpenMed's golden-fixture format, one JSON object per line."""
    return "".join(
        json.dumps(_fixture(number, sentence), ensure_ascii=False) + "\n"
        for number, sentence in enumerate(sentences)
    )


def _fixture(number: int, sentence: Sentence) -> dict[str, object]:
    return {
        "id": f"pii-heldout-{number:04}",
        "text": sentence.text,
        "language": "en",
        "gold_spans": [
            {"start": s.start, "end": s.end, "label": s.label, "text": sentence.text[s.start : s.end]}
            for s in sentence.spans
        ],
        "metadata": {"source": "synthetic", "template": sentence.template},
    }


def _distinct(source: Source, count: int) -> list[Sentence]:
    """Return `count` distinct sentences; the templates take turns in a shuffled order."""
    sentences: dict[str, Sentence] = {}
    turns = _turns(source)
    while len(sentences) < count:
        sentence = _fill(source, next(turns))
        sentences.setdefault(sentence.text, sentence)
    return list(sentences.values())


def _turns(source: Source) -> Iterator[int]:
    while True:
        order = list(range(len(source.words.templates)))
        source.rng.shuffle(order)
        yield from order


def _fill(source: Source, template: int) -> Sentence:
    text, spans = "", []
    for literal, field, _, _ in Formatter().parse(source.words.templates[template]):
        text += literal
        if field is None:
            continue
        value = VALUES[field](source)
        if field in LABELS:
            spans.append(Span(len(text), len(text) + len(value), field))
        text += value
    return Sentence(text, tuple(spans), template)


def _first_name(source: Source) -> str:
    return source.rng.choice(source.words.first_names)


def _last_name(source: Source) -> str:
    return source.rng.choice(source.words.last_names)


def _address(source: Source) -> str:
    street = source.rng.choice(source.words.streets)
    kind = source.rng.choice(("Street", "Avenue", "Road", "Lane", "Drive", "Court", "St", "Ave", "Rd"))
    town = source.rng.choice(source.words.towns)
    house, flat, code = source.number(1, 9899), source.number(1, 400), source.number(10000, 99999)
    formats = ("{0} {1} {2}", "{0} {1} {2}, {3}", "{0} {1} {2}, Apt {4}, {3}", "{0} {1} {2}, {3} {5}")
    return source.rng.choice(formats).format(house, street, kind, town, flat, code)


def _date(source: Source) -> str:
    day = date.fromordinal(source.number(date(1935, 1, 1).toordinal(), date(2025, 12, 31).toordinal()))
    formats = ("{0:%B} {1}, {0:%Y}", "{0:%m/%d/%Y}", "{0:%Y-%m-%d}", "{1} {0:%b} {0:%Y}", "{0:%m/%d/%y}")
    return source.written(formats, "{1} of {0:%B} '{0:%y}", day, day.day)


def _email(source: Source) -> str:
    first, last = _ascii(_first_name(source)), _ascii(_last_name(source))
    formats = ("{0}.{1}@{3}", "{0}{2}@{3}", "{0[0]}{1}@{3}", "{1}_{0}@{3}", "{0}.{1}{2}@{3}")
    domain = source.rng.choice(source.words.domains)
    return source.rng.choice(formats).format(first, last, source.number(1, 99), domain)


def _ascii(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isascii())


def _mrn(source: Source) -> str:
    number = source.number(100000, 9999999)
    prefix = source.rng.choice("ABEHKMPT")
    return source.written(("{0}", "MRN-{0}", "{1}{0}", "{0:08}", "#{0}"), "{1}{1}/{0}", number, prefix)


def _phone(source: Source) -> str:
    digits = str(source.number(2012000000, 9899999999))
    parts = digits[:3], digits[3:6], digits[6:]
    formats = ("({0}) {1}-{2}", "{0}-{1}-{2}", "{0}.{1}.{2}", "+1 {0} {1} {2}", "+1 {0}-{1}-{2}")
    return source.written(formats, "{0}/{1} {2}", *parts)


def _ssn(source: Source) -> str:
    digits = f"{source.number(1_01_0001, 899_99_9999):09}"
    parts = digits[:3], digits[3:5], digits[5:]
    return source.written(("{0}-{1}-{2}", "{0}-{1}-{2}", "{0}{1}{2}"), "{0} {1} {2}", *parts)


def _drug(source: Source) -> str:
    return source.rng.choice(source.words.drugs)


def _dose(source: Source) -> str:
    return source.rng.choice(("{0} mg", "{0}mg", "{0} ml")).format(source.number(1, 900))


def _room(source: Source) -> str:
    return f"{source.rng.choice(('', 'A', 'B'))}{source.number(1, 699)}"


def _lab(source: Source) -> str:
    return f"{source.number(90, 180)}/{source.number(50, 110)}"


def _count(source: Source) -> str:
    return str(source.number(2, 60))


def _hour(source: Source) -> str:
    start = timedelta(minutes=source.number(0, 1439))
    return f"{start.seconds // 3600:02}:{start.seconds % 3600 // 60:02}"


def _money(source: Source) -> str:
    return f"${source.number(5, 2500)}.{source.number(0, 99):02}"


VALUES: dict[str, Callable[[Source], str]] = {
    "ADDRESS": _address,
    "DATE": _date,
    "EMAIL": _email,
    "FIRSTNAME": _first_name,
    "LASTNAME": _last_name,
    "MRN": _mrn,
    "PHONE": _phone,
    "SSN": _ssn,
    "drug": _drug,
    "dose": _dose,
    "room": _room,
    "lab": _lab,
    "count": _count,
    "hour": _hour,
    "money": _money,
}
