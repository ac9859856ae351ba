"""Run artifacts on this machine, with repeatable results.

`sessions` opens ONNX Runtime with one thread and no output, and survives a crash of ONNX Runtime; `golden`
runs graphs on arrays in files, and makes and checks golden vectors.

Start with `sessions.py`.
"""
