"""Recipes that come with onnxreg, and recipes of other packages (entry points): `profile_catalog`."""
