"""Metrics: figures about a model on a suite, each with a version, a direction, a default limit and its own rule.

A `Metric` scores single items and computes its value from any rows of scores; `metric_catalog` finds ours and those
that other packages bring as entry points of the group `onnxreg.metrics`; `MetricContract` is the test suite for both.
The values are those of scikit-learn, SciPy and seqeval, to the bit: certificates are compared with them.

Start with `metric.py`, then `classification.py`. A metric must not run a model: it reads predictions.
"""
