"""What tests of dossiers share: a judge that shares no code with onnxreg."""
