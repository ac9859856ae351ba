"""Recipes that come with onnxreg, and those of other packages (entry points): `profile_catalog`."""
