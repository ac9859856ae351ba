"""Models that already exist: loose files, directories that OpenMed wrote, model packages of ONNX Runtime."""
