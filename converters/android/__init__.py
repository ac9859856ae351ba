"""The android profile: a trained token classifier to the files that mobile kits load."""

from onnxreg.converters.android.android_options import AndroidOptions
from onnxreg.converters.android.export import export_android, order_android

__all__ = ["AndroidOptions", "export_android", "order_android"]
