"""Running artifacts on this machine, repeatably.

`sessions` opens ONNX Runtime with one thread and no output, `golden` makes and checks golden vectors, `run`
is `reg run`, `npz` reads arrays without pickles.

Start with `sessions.py`.
"""
