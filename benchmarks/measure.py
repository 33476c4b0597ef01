"""How a benchmark says what it measured: a figure beside what it is compared with, in the same run, ratio first."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """`value` and `peer` in `unit`; `aim` is the ratio (or the value, where there is no peer) to reach."""

    name: str
    value: float
    unit: str = "s"
    peer: float | None = None
    peer_name: str = ""
    aim: str = ""

    @property
    def ratio(self) -> float | None:
        return self.value / self.peer if self.peer else None


def seconds(body: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    body()
    return time.perf_counter() - start


def machine() -> str:
    """What the figures were measured on."""
    memory = psutil.virtual_memory().total / 2**30
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {system}"


def show(figures: list[Figure]) -> None:
    """A table, ratio first."""
    table = Table(title=f"Measured on {machine()}")
    for heading in ("ratio", "what", "figure", "beside", "aim"):
        table.add_column(heading)
    for figure in figures:
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        beside = "" if figure.peer is None else f"{figure.peer:,.3g} {figure.unit} {figure.peer_name}"
        table.add_row(ratio, figure.name, f"{figure.value:,.3g} {figure.unit}", beside, figure.aim)
    Console(width=140).print(table)
