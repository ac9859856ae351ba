"""Does a quantized token classifier still find what its full-precision parent finds?"""
