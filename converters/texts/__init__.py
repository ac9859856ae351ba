"""An artifact of a version on texts, in ONNX Runtime and with the version's own `tokenizer.json`.

`run_texts` looks at the graph's inputs and outputs and gives the answer of its kind: spans, classes, a part of a
context, vectors or text. Spans and answers are decoded as in an evaluation.

Start with `run_texts.py`. Must not import: `engine`, `families`, `importers`.
"""
