"""Who runs the cells: processes of this machine, a Dask cluster, or a Ray cluster; joblib speaks to all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

from allocator.replay.errors import MissingExtraError
from allocator.whatif.errors import WhatIfError
from allocator.whatif.scenario_doc import RunDoc

T = TypeVar("T")


def run_all(call: Callable[..., T], arguments: Iterable[tuple[Any, ...]], run: RunDoc) -> Iterator[T]:
    """Call a function once for each tuple of arguments, in parallel; the results as they come, in any order.

    Raises
    ------
    MissingExtraError
        If the packages of the backend are not installed.
    WhatIfError
        If the settings make no sense.
    """
    if run.jobs == 0:
        raise WhatIfError("no cell at a time: give jobs = -1 for all cores, or a number from 1 on")
    joblib = _import("joblib", "whatif")
    with _BACKENDS[run.backend](run):
        # joblib's backend for Ray gives all results at the end; cells are kept as they are played all the same
        as_they_come = "list" if run.backend == "ray" else "generator_unordered"
        parallel = joblib.Parallel(n_jobs=run.jobs, batch_size=1, return_as=as_they_come)
        yield from parallel(joblib.delayed(call)(*each) for each in arguments)


def _local(run: RunDoc) -> AbstractContextManager[Any]:
    if run.address is not None:
        raise WhatIfError("processes of this machine have no address: give the backend, dask or ray")
    return nullcontext()


@contextmanager
def _dask(run: RunDoc) -> Iterator[None]:
    """The cluster at the address, or one of processes on this machine, for as long as it is needed."""
    joblib, distributed = _import("joblib", "whatif"), _import("distributed", "dask")
    where: dict[str, Any] = {"address": run.address}
    if run.address is None:
        where = {"threads_per_worker": 1, "dashboard_address": ":0", "n_workers": None if run.jobs < 1 else run.jobs}
    with distributed.Client(**where), joblib.parallel_config(backend="dask"):
        yield


@contextmanager
def _ray(run: RunDoc) -> Iterator[None]:
    """Likewise for Ray."""
    joblib, ray = _import("joblib", "whatif"), _import("ray", "ray")
    register = _import("ray.util.joblib", "ray").register_ray
    where = {"address": run.address} if run.address is not None else {"num_cpus": None if run.jobs < 1 else run.jobs}
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="WARNING", **where)
    try:
        register()
        with joblib.parallel_config(backend="ray"):
            yield
    finally:
        ray.shutdown()


_BACKENDS: Mapping[str, Callable[[RunDoc], AbstractContextManager[Any]]] = {"local": _local, "dask": _dask, "ray": _ray}


def _import(name: str, extra: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtraError(f"{name} is not installed: pip install 'gpu-epoch-allocator[{extra}]'") from error
