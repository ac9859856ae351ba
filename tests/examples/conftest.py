"""The examples are scripts with modules beside them, as `python examples/train_pii.py` sees them."""
