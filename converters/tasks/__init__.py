"""What recipes start from: each task finds a source of its kind, loads it, and says how its outputs are measured."""
