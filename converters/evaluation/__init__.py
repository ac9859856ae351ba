"""The evaluation of artifacts: each compared with the source that it was made from, on a suite.

A `Suite` has the items of a task; a `TaskEvaluator` makes inputs of them and reads the outputs of a model, which `predict`
runs; a `Metric` scores the items and judges the scores; a `certificate` has the figures. `run_texts` runs an artifact on
texts with the same decoders. Start with `evaluate.py`. The claim in words: docs/certification.md.
"""
