"""The language of `--where`: `format = onnx-int8 and size <= 30MB and recall.PHONE > 0.9`.

`parser` splits the text and builds the `Expression`, whose nodes (`tree`) answer `matches(candidate)`;
`fields` lists the fields of a candidate. `str(expression)` parses to the same tree. An `ExpressionError` shows the
position of the mistake.

Start with `parser.py`. The language in words: docs/query.md.
Must not import: anything of onnxreg except `schema.core`, `schema.manifest` and `schema.log`.
"""
