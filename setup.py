"""Packages of a wheel. Commands and configs lie beside the package in a checkout and inside it in a wheel,

so that `python -m experiments.train` works in a checkout, `python -m jaxmarl_llm.experiments.train` where the
wheel is installed, and no package of a common name is put into an environment.
"""

from setuptools import find_packages, setup

INSIDE = {"jaxmarl_llm.experiments": "experiments", "jaxmarl_llm.configs": "configs"}
setup(packages=[*find_packages(include=["jaxmarl_llm*"]), *INSIDE], package_dir=INSIDE)
