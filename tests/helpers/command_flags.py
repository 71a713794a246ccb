"""Flags of a command for a test, apart from those of the process."""

from absl import flags


def defined_apart(monkeypatch) -> flags.FlagValues:
    """The flag values into which every ``flags.DEFINE_..`` of this test defines, in place of ``flags.FLAGS``."""
    own = flags.FlagValues()
    monkeypatch.setattr(flags, "FLAGS", own)
    for name in ("DEFINE_list", "DEFINE_enum", "DEFINE_float", "DEFINE_integer", "DEFINE_string", "DEFINE_bool"):
        define = getattr(flags, name)
        monkeypatch.setattr(flags, name, lambda *a, _define=define, **k: _define(*a, flag_values=own, **k))
    return own
