"""Writes requirements.txt, -dev.txt and -build.txt: the versions of constraints.txt with the SHA-256 of their files.

    .venv/bin/python scripts/hashes.py

`scripts/install.sh` installs them with `pip install --require-hashes`. Names and hashes come from the index that pip
is set up with, through pip's own client; no address is written. Files are those of CPython 3.11 to 3.13 on Linux and
macOS, x86-64 and aarch64, and source archives where a release has no wheel for all of them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version
from pip._internal.commands.download import DownloadCommand
from pip._internal.index.collector import LinkCollector, parse_links
from pip._internal.models.link import Link

TOP = Path(__file__).parent.parent
BUILD = ("setuptools",)
"""What source archives are built with, and Tidegate itself."""
PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "x86_64"), ("darwin", "arm64"))
TAG = re.compile(
    r"(cp31[123]-cp31[123]|cp3\d+-abi3|py3\d*-none|cp31[123]-none)"
    r"-(any|manylinux\w+_(x86_64|aarch64)|macosx_\w+_(x86_64|arm64|universal2))"
)
HEADER = """# Made by scripts/hashes.py from constraints.txt: what is installed, and the SHA-256 of each of its files.
"""


def pinned() -> dict[str, str]:
    """The lines of constraints.txt: name -> version."""
    lines = (TOP / "constraints.txt").read_text().splitlines()
    return {name: version for name, _, version in (line.partition("==") for line in lines) if version}


def needed(roots: Iterable[str]) -> set[str]:
    """The packages that these requirements bring along, on any Python and machine that Tidegate runs on, by what the
    packages of this environment say."""
    environments = [
        {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": system,
         "platform_system": system.title(), "platform_machine": machine, "os_name": "posix",
         "implementation_name": "cpython", "platform_python_implementation": "CPython"}
        for python in PYTHONS for system, machine in MACHINES
    ]  # fmt: skip
    found: set[str] = set()
    seen: set[tuple[str, str]] = set()
    waiting = [Requirement(root) for root in roots]
    while waiting:
        item = waiting.pop()
        found.add(canonicalize_name(item.name))
        for extra in ("", *item.extras):
            if (key := (canonicalize_name(item.name), extra)) in seen:
                continue
            seen.add(key)
            for line in distribution(item.name).requires or ():
                inner = Requirement(line)
                if inner.marker is None or any(inner.marker.evaluate({**e, "extra": extra}) for e in environments):
                    waiting.append(inner)
    return found


def hashes(names: dict[str, str]) -> dict[str, list[str]]:
    """The SHA-256 of the files of each release, sorted."""
    command = DownloadCommand("download", "")
    options, _ = command.parse_args([])
    found: dict[str, list[str]] = {}
    with command.main_context():
        collector = LinkCollector.create(command.get_default_session(options), options)
        for name, version in names.items():
            pages = map(collector.fetch_response, map(Link, collector.search_scope.get_index_urls_locations(name)))
            links = [link for page in pages if page for link in parse_links(page)]
            found[name] = sorted({link.hash for link in links if link.hash and wanted(link.filename, version)})
    return found


def wanted(filename: str, version: str) -> bool:
    """Whether a file of an index is of this release, for a Python and a machine that Tidegate runs on."""
    try:
        if filename.endswith(".tar.gz"):
            return parse_sdist_filename(filename)[1] == Version(version)
        _, of, _, tags = parse_wheel_filename(filename)
    except (InvalidSdistFilename, InvalidVersion, InvalidWheelFilename):
        return False
    return of == Version(version) and any(TAG.fullmatch(str(tag)) for tag in tags)


def write(path: Path, names: Iterable[str], versions: dict[str, str], files: dict[str, list[str]]) -> None:
    lines = [HEADER]
    for name in sorted(names):
        lines.append(" \\\n    ".join([f"{name}=={versions[name]}", *(f"--hash=sha256:{one}" for one in files[name])]))
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    versions = {canonicalize_name(name): version for name, version in pinned().items()}
    running, building = needed(project["dependencies"]), needed(BUILD)
    all_of = running | building | needed(project["optional-dependencies"]["dev"])
    if lacking := sorted(all_of - set(versions)):
        raise SystemExit(f"constraints.txt has no version of {', '.join(lacking)}")
    files = hashes({name: versions[name] for name in sorted(all_of)})
    if lacking := sorted(name for name, found in files.items() if not found):
        raise SystemExit(f"the index has no SHA-256 of {', '.join(lacking)}")
    write(TOP / "requirements.txt", running, versions, files)
    write(TOP / "requirements-dev.txt", all_of - running - building, versions, files)
    write(TOP / "requirements-build.txt", building, versions, files)


if __name__ == "__main__":
    main()
