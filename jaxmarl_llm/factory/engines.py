"""Build the engine that samples completions from a config."""

import contextlib
import hashlib
import pathlib
from collections.abc import Iterator

from jaxmarl_llm import resume_checks
from jaxmarl_llm.config import engine as engine_config
from jaxmarl_llm.rollout.engines import LOCAL, Engine
from jaxmarl_llm.rollout.engines.adapter_store import AdapterStore
from jaxmarl_llm.rollout.engines.calls import Server
from jaxmarl_llm.rollout.engines.completions import CompletionsEngine
from jaxmarl_llm.rollout.engines.local import LocalEngine
from jaxmarl_llm.utils import distributed, user_cache
from jaxmarl_llm.utils.compiled_ahead import CompiledAhead
from jaxmarl_llm.utils.errors import UserError

FOLDER = "adapters"  # in the run folder, unless the config names another folder


@contextlib.contextmanager
def opened(config, folder, ahead: CompiledAhead | None = None) -> Iterator[Engine]:
    """The engine of a run in ``folder``, closed when the block ends. ``ahead``: see `LocalEngine`.

    UserError naming the server if one does not answer, or the adapter folder if it cannot be written to.
    Also UserError for several processes of one run, since each would sample all completions.
    """
    if not engine_config.by_servers(config):
        yield LocalEngine(ahead) if ahead else LOCAL
        return
    if distributed.is_distributed():
        raise UserError(
            f"engine.kind={config.engine.kind!r}: allowed is one process, the servers are the others"
        )
    c, folder = config.engine, pathlib.Path(folder).resolve()
    how = dict(timeout=c.timeout_seconds, retries=c.retries, key_variable=c.key_variable)
    servers = [Server(url, **how) for url in c.servers]
    run = hashlib.sha256(str(folder).encode()).hexdigest()[:8]
    store = AdapterStore(_adapter_folder(c.adapter_folder, folder), run)
    engine = CompletionsEngine(servers, store, parallel=c.parallel, max_gap=c.max_gap)
    engine.open()
    try:
        yield engine
    finally:
        engine.close()


def _adapter_folder(given: str, run_folder: pathlib.Path) -> pathlib.Path:
    """The adapter folder, checked to be writable; ``given``: its name in the config."""
    if not given:
        return run_folder / FOLDER
    folder = user_cache.expanded(given)
    try:
        resume_checks.ensure_writable(folder)
    except UserError as error:
        raise UserError(f"engine.adapter_folder={given!r}: {error}") from error
    return folder
