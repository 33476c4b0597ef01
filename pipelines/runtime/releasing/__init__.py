"""Release, stage, judge and publish the epochs of one INSERT, strictly one after another.

    plan n -> staged files and their row -> verdict -> quarantine commit -> target commit -> plan n+1

Each arrow is one commit that a rerun recognises. A held epoch stays where it is until a person re-releases or discards
it, which is epoch n+1 over the same probe rows.

What needs Spark is loaded when it is used: who only asks where an INSERT stands does without.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidegate.pipelines.runtime.releasing.position import End, InsertOnLake, Position, Waiting, held

if TYPE_CHECKING:
    from tidegate.pipelines.runtime.releasing.insert_runner import InsertRunner, Published

__all__ = ["End", "InsertOnLake", "InsertRunner", "Position", "Published", "Waiting", "held"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.insert_runner"), name)
