"""The evaluation of artifacts: each artifact is compared with its source on a suite.

A `Suite` has the items of a task. A `TaskEvaluator` turns items into inputs, which `predict` runs through a model, and
reads the outputs. A `Metric` scores the items and judges the scores; `evaluate` writes the figures into certificates.
`answers` decodes outputs for `reg run` in the same way. Start with `evaluate.py`. The claim in words: docs/certification.md.
"""
