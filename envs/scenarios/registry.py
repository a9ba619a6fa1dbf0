"""The scenarios by name, with options: ``gpu-cluster``, ``gpu-cluster:noise=0.3``, ``own:...``."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping

from hetsched.envs.scenarios import dag, fjsp, gpu_cluster, hitzges, own, rcmax, upmsp
from hetsched.envs.scenarios.scenario import Scenario

Builder = Callable[[str, Mapping[str, str]], Scenario]


def _builders() -> dict[str, tuple[Builder, tuple[str, ...]]]:
    """Name -> (builder, the options it takes).  A new scenario is one more line here."""
    cluster = gpu_cluster.OPTIONS
    return {
        "hitzges": (hitzges.build, ()),
        "gpu-cluster": (gpu_cluster.build, cluster),
        "gpu-cluster-noisy": (gpu_cluster.build_noisy, cluster),
        "gpu-cluster-single": (gpu_cluster.build_single, cluster),
        "gpu-cluster-offline": (gpu_cluster.build_offline, gpu_cluster.OFFLINE_OPTIONS),
        "rcmax": (rcmax.build, ()),
        "upmsp": (upmsp.build, upmsp.OPTIONS),
        "fjsp": (fjsp.build, fjsp.OPTIONS),
        "dag": (dag.build, dag.OPTIONS),
        "own": (own.build, own.OPTIONS),
    }


def scenario_names() -> tuple[str, ...]:
    """The names that ``get_scenario`` knows, without options."""
    return tuple(_builders())


def get_scenario(name: str) -> Scenario:
    """The scenario called ``NAME`` or ``NAME:option=value,option=value``.

    Raises:
        ValueError: an unknown name or option, an option without ``=``, given twice or with a
            value that makes no sense.
    """
    head, colon, tail = name.partition(":")
    builders = _builders()
    if head not in builders:
        raise ValueError(f"no scenario {head!r}{_nearest(head, builders)}")
    build, known = builders[head]
    options: dict[str, str] = {}
    for part in tail.split(",") if colon else ():
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise ValueError(f"option {part!r} of scenario {head!r} must read OPTION=VALUE")
        if key not in known:
            if not known:
                raise ValueError(f"scenario {head!r} takes no options, got {key!r}")
            raise ValueError(f"scenario {head!r} has no option {key!r}{_nearest(key, known)}")
        if key in options:
            raise ValueError(f"option {key!r} of scenario {head!r} is given twice, keep one")
        options[key] = value
    return build(name, options)


def _nearest(word: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    return f"{hint} known: {', '.join(known)}"
