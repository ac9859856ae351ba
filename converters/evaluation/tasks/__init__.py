"""Evaluation of each task: its items, the inputs that a model takes for them, and predictions from its outputs.

A `TaskEvaluator` is the only thing that an evaluation knows of a task; `evaluation_plan` finds it by the task's id.
Parent and artifacts get the same inputs, and their outputs are read by the same code.

Start with `task_evaluator.py`, then `text_classes.py`. An evaluator must not know how a model is run, nor which metrics
there are.
"""
