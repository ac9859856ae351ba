"""The android profile: a trained token classifier to the files that mobile kits load."""

from onnxreg.converters.android.export import export_android, order_android
from onnxreg.converters.android.options import AndroidOptions

__all__ = ["AndroidOptions", "export_android", "order_android"]
