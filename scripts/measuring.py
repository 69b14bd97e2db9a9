"""What the measurements that train a graph several times share: a command line and a record."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ekgn.files import write_json
from ekgn.records import environment

ROOT = Path(__file__).resolve().parent.parent
Measure = Callable[[str, int, dict[str, Any]], dict[str, Any]]
"""From a graph's name, how many things are measured and the settings, to a record."""


def measure_graphs(about: str | None, of: str, count: int, folder: str, measure: Measure) -> None:
    """Measure the graphs of the command line; keep the records in results/FOLDER.

    `of` names what is counted, and with it the option that says how many.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("names", nargs="+")
    parser.add_argument(f"--{of}", dest="count", type=int, default=count)
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--embedding-dim", type=int, default=0)
    parser.add_argument("--penalty", type=float, default=-1.0)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    settings = {
        name: getattr(given, name) for name in ("epochs", "embedding_dim", "penalty", "threads")
    }
    settings["valid_every"] = given.epochs
    for name in given.names:
        found = {"graph": name, **measure(name, given.count, settings)}
        found["environment"] = environment(torch.device("cpu"))
        write_json(ROOT / "results" / folder / f"{name}.json", found)
