"""Profiles: named recipes of onnxreg, and of other packages (by entry points). Start with `profile_catalog.py`."""
