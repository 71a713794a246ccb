"""What `experiments.plan` prints: memory and time of a config's programs on some devices, and whether it fits."""

from jaxmarl_llm.analysis.planning import chips, estimate, from_config, memory, search, tables
from jaxmarl_llm.config import imitation, workload
from jaxmarl_llm.factory import hardware
from jaxmarl_llm.utils import console


def print_plan(config, topology: str, memory_gib: float | None, tries: int) -> int:
    """Print the plan of a valid config; 0 if everything fits, 2 if not.

    Args:
      config: the training config.
      topology: TPU slice such as v5e:4x4; empty: the devices of this machine.
      memory_gib: memory of a device; None: what is known of the device.
      tries: maximal number of settings to compile when searching for fitting ones; 0: no search.
    """
    devices, name = from_config.devices(topology)
    hardware.prepare(config, devices)
    settings = from_config.settings(config)
    limit = memory_gib * chips.GIB if memory_gib is not None else chips.memory_limit(devices[0])
    measure, promising = from_config.measuring(config, devices, limit, tries)
    if from_config.chooses_mesh(config, len(devices)):
        settings = from_config.choose_mesh(config, devices, promising)
        print(
            f"mesh: chosen for {len(devices)} devices: "
            f"{from_config.flags(from_config.settings(config), settings)}"
        )
    elif reason := from_config.why_no_mesh(config, len(devices)):
        print(f"mesh: one of {len(devices)} devices (1,1,1), as a mesh of several would be refused: {reason}")
    fits, programs = measure(settings)
    show(config, devices, name, settings, programs, limit)
    if fits:
        print(f"it fits on {name}" if limit else f"how much memory a device of {name} has is not known")
        return 0
    print(f"it does not fit on {name}")
    if tries:
        with console.ProgressDisplay(tries, label="settings compiled") as display:

            def measure_shown(tried: search.Settings):
                result = measure(tried)
                display.update(measure.cache_info().misses - 1, {})  # the first ones were those of the config
                return result

            fitting = search.nearest(settings, from_config.limits(config), measure_shown, promising)
        show_fitting(settings, fitting, tries)
    return 2


def show(config, devices, name: str, settings: search.Settings, programs: list, limit: float | None) -> None:
    """Print the work of an iteration, the memory of every stack's programs, and the time of its phases."""
    mesh = f"agent {settings.agent} x data {settings.data} x model {settings.model}"
    jobs = from_config.jobs(from_config.with_settings(config, settings), devices)
    gathered = dict.fromkeys(axis for job in jobs for axis in job.stack.layout.gathered)
    rows = [
        ("devices", f"{name}: {len(devices)} x {devices[0].device_kind}"),
        ("mesh", mesh + (f", parameters cut along {' and '.join(gathered)} (fsdp)" if gathered else "")),
        _read(config),
        *([("seeds", f"{len(config.seeds)} at the same time, each does what is here")] if config.seeds else []),
        ("completions", f"{workload.completions(config)}, {workload.tokens(config)} tokens at most"),
        ("prompts", f"up to {config.sampling.max_prompt_tokens} tokens, counted as if all were that long"),
        ("optimizer steps", f"{workload.updates_per_iteration(config)} per agent"),
        ("micro-batch", f"{settings.prompts} prompts, {settings.tokens} tokens; remat {settings.remat}"),
    ]  # fmt: skip
    console.table(rows, ("one iteration", ""))
    chip = chips.of_device(devices[0])
    for job, compiled in zip(jobs, programs, strict=True):
        used = len(devices) if job.stack.layout.mesh else 1
        agents = f"{', '.join(job.stack.agents)} ({job.stack.mode})"
        rows = tables.memory_rows(compiled, limit)
        console.table(rows, ("GiB per device", *compiled), title=f"\n{agents}")
        if chip is None:
            print(f"no published rates are known of {devices[0].device_kind!r}: no estimate of time")
        else:
            console.table(tables.time_rows(estimate.phases(job), chip, used), tables.TIME_HEADERS, title="")


def _read(config) -> tuple[str, str]:
    """What agents learn from in an iteration, as a table row."""
    c, agents = config.train, len(config.team.agents)
    if imitation.draws_nothing(config):
        return "demonstrations x agents", f"{config.sft.batch} x {agents}"
    nodes, samples = " + ".join(map(str, workload.nodes(config))), c.group + c.partner_samples
    samples = f"{samples}, then {c.later_samples}" if c.later_samples else samples
    return "nodes of each turn x agents x samples", f"{nodes} x {agents} x {samples}"


def show_fitting(start: search.Settings, fitting: list[search.FittingSettings], tries: int) -> None:
    """Print fitting settings, as flags, with the memory of the largest program."""
    rows = [
        (from_config.flags(start, settings), max(memory.fullest(programs)) / chips.GIB)
        for settings, programs in fitting
    ]
    if rows:
        console.table(rows, ("compiled, and fits", "GiB per device"), title="")
    else:
        print(f"nothing near it was found to fit in {tries} tries")
