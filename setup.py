"""Map the four code directories to packages of the `onnxreg` namespace; everything else is in pyproject.toml."""

from setuptools import find_packages, setup

DIRECTORIES = ("cli", "converters", "registry", "schema")

setup(
    package_dir={f"onnxreg.{directory}": directory for directory in DIRECTORIES},
    packages=[
        f"onnxreg.{package}"
        for directory in DIRECTORIES
        for package in (directory, *(f"{directory}.{inner}" for inner in find_packages(directory)))
    ],
)
