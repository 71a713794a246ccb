"""Checks of a team, its update, its reward and its tokenizers before training; each gives a `Result`."""

from jaxmarl_llm.analysis.doctor.result import STATUSES, Result, check

__all__ = ["STATUSES", "Result", "check"]
