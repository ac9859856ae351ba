"""An artifact of a version on texts, in ONNX Runtime and with the version's own `tokenizer.json`.

`run_texts` looks at the graph's inputs and outputs and calls the module of its kind: `spans`, `classes`,
`answers`, `vectors`, `completion`. What they decode is decoded as in an evaluation.

Start with `run_texts.py`. Must not import: `engine`, `families`, `importers`.
"""
