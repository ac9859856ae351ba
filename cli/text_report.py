"""The answers of `reg run --text` as tables for people."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from onnxreg.cli.output import counted, printable, table

MAX_VALUES, MAX_CLASSES, MAX_TEXT_CHARACTERS = 6, 10, 40
"""The most that people are shown of a vector, of the classes of a text, and of a text in a table."""
CUT = "the text is longer than the model takes: its end was not read"


def lines(answer: dict[str, Any], texts: Sequence[str]) -> Iterator[str]:
    """The answer of `run_texts` for people."""
    if "classes" in answer:
        classes = answer["classes"]
        rows = [(printable(item["label"]), f"{item['score']:.4f}") for item in classes[:MAX_CLASSES]]
        yield from table(("LABEL", "SCORE"), rows)
        if len(rows) < len(classes):
            yield f"... and {len(classes) - len(rows)} more; --json has them all"
        yield from ["", CUT] if answer["truncated"] else []
    elif "embeddings" in answer:
        yield from _vector_lines(answer)
    elif "completion" in answer:
        added = answer["completion"]
        yield from map(printable, f"{texts[0]}{added['text']}".splitlines())
        end = "the model" if added["finish"] == "end" else "--max-tokens"
        yield from ("", f"{counted(added['tokens'], 'token')} follow the text; {end} ended it")
    elif "answer" in answer:
        if (part := answer["answer"]) is None:
            yield "the context has no answer"
        else:
            row = (printable(part["text"]), part["start"], part["end"], f"{part['score']:.4f}")
            yield from table(("ANSWER", "START", "END", "SCORE"), [row])
    else:
        spans = [(span["label"], span["start"], span["end"], span["text"]) for span in answer["spans"]]
        yield from table(("LABEL", "START", "END", "TEXT"), spans)
        if not spans:
            yield "no labelled spans"


def _vector_lines(answer: dict[str, Any]) -> Iterator[str]:
    """The vectors of the texts: the tokens of a single text, or the similarities of several."""
    items, cosines = answer["embeddings"], answer["similarity"]
    rows = [
        (_short(printable(item["text"])), len(item["vector"]), first_values(item["vector"])) for item in items
    ]
    yield from table(("TEXT", "SIZE", "FIRST VALUES"), rows)
    if len(items) > 1:
        header = ("COSINE", *(f"TEXT {number}" for number in range(1, len(cosines) + 1)))
        lines = [(f"text {number}", *(f"{c:.4f}" for c in row)) for number, row in enumerate(cosines, 1)]
        yield from ("", *table(header, lines))
    elif "tokens" in items[0]:
        tokens = [
            (printable(token["token"]), token["start"], token["end"], first_values(token["vector"]))
            for token in items[0]["tokens"]
        ]
        yield from ("", *table(("TOKEN", "START", "END", "FIRST VALUES"), tokens))
    if answer["pooling"] == "mean":
        yield from ("", "the graph gives a vector for each token; a text's is their mean")
    if "prompt" in answer:
        yield from ("", f"before each text: {printable(answer['prompt'])}")
    if any(item["truncated"] for item in items):
        yield from ("", CUT)


def _short(text: str) -> str:
    return f"{text[: MAX_TEXT_CHARACTERS - 3]}..." if len(text) > MAX_TEXT_CHARACTERS else text


def first_values(values: Iterable[float | int | None]) -> str:
    """The first numbers of an array, for people."""
    numbers = list(values)
    shown = [f"{value:.4g}" if isinstance(value, float) else str(value) for value in numbers[:MAX_VALUES]]
    return " ".join(shown) + (" ..." if len(numbers) > MAX_VALUES else "")
