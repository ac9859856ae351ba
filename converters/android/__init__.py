"""The android profile: a trained token classifier becomes the files that mobile kits load.

`android.yaml` is the recipe. `AndroidOptions` are its parameters, `android_profile` checks what a recipe
cannot express (tensor contract, facts for version 1 readers, the verdict on INT8), `export` is the call in
Python.

Start with `android.yaml`, then `android_profile.py`. The profile in words: docs/android.md.
"""

from onnxreg.converters.android.android_options import AndroidOptions
from onnxreg.converters.android.export import export_android, order_android

__all__ = ["AndroidOptions", "export_android", "order_android"]
