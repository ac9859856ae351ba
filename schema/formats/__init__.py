"""Documents for other tools: CycloneDX bills of materials, the file layout of the Hugging Face Hub, model packages of
ONNX Runtime, and JSON Schemas.

Start with the module of the format that you need.
"""
