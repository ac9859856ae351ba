"""The evaluation of artifacts: each artifact is compared with its source on a suite.

A `Suite` has the items of a task. A `TaskEvaluator` turns items into inputs; `predict` runs a model on them, and the
evaluator reads the outputs. A `Metric` scores and judges them; `evaluate` writes the figures into certificates. `answers`
decodes outputs for `reg run` in the same way. Start with `evaluate.py`. docs/certification.md says what is claimed.
"""
