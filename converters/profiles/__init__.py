"""Profiles: named recipes, of onnxreg and of other packages."""
