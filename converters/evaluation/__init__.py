"""The evaluation of artifacts: each is compared with its source on a suite. Start with `evaluate.py`.

A `TaskEvaluator` turns the items of a `Suite` into inputs, and outputs into predictions. A `Metric` scores and judges
the predictions. docs/certification.md says what a certificate claims.
"""
