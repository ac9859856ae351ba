"""The android profile: a trained token classifier becomes the files that mobile kits load.

`android.yaml` is the recipe, `android_recipe` applies options to it. `android_profile` checks what a recipe cannot
express (tensor contract, facts for version 1 readers, the verdict on INT8).

Start with `android.yaml`, then `android_profile.py`. The profile in words: docs/android.md.
"""
