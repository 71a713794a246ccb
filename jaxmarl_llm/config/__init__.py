"""Config files: all fields with defaults and rules, the options after the colon, sweeps. JAX is not imported.

A config file defines ``get_config(arg=None)``, which changes `base_config`, and may define ``sweep``.
"""

from jaxmarl_llm.config.base import FIELDS, base_config, judged_by, validate
from jaxmarl_llm.config.options import ConfigDict, parse_arg
from jaxmarl_llm.utils.errors import UserError

__all__ = ["FIELDS", "ConfigDict", "UserError", "base_config", "judged_by", "parse_arg", "validate"]
