"""Import existing models: files, directories of OpenMed or `reg`, and repositories of the Hugging Face Hub.

The documents of a source may contradict its files. Then the files are right, and the contradiction is reported.
"""
