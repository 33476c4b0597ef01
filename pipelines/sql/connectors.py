"""The connectors that a script may name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidegate.pipelines.sources.protocol import ConnectorSpec


class InstalledConnectors(Mapping[str, ConnectorSpec]):
    """Every installed connector by name; its package is loaded when it is asked for, and not before.

    `[name]` raises KeyError, and PlanningError when the connector is installed but cannot be loaded.
    """

    def __getitem__(self, name: str) -> ConnectorSpec:
        from tidegate.pipelines.sources.registry import connector

        return connector(name).spec

    def __iter__(self) -> Iterator[str]:
        from tidegate.pipelines.sources.registry import names

        return iter(names())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return name in set(self)


def never_signalling(spec: ConnectorSpec, options: Mapping[str, str]) -> bool:
    """Whether a table of these options has a bounded phase whose end nobody will be told."""
    return spec.phases(options) and not spec.signals(options)


def ways_out(spec: ConnectorSpec, options: Mapping[str, str]) -> list[tuple[str, str]]:
    """Single options (name, value) that would make `never_signalling` false: found by asking the connector."""
    found: list[tuple[str, str]] = []
    for option in spec.options:
        choices = ("true", "false") if option.kind == "boolean" else option.choices
        for choice in choices:
            if options.get(option.name, option.default) != choice and not never_signalling(
                spec, {**options, option.name: choice}
            ):
                found.append((option.name, choice))
    return found
