"""Functions of a script's own: CREATE FUNCTION name AS 'module.function' LANGUAGE PYTHON (FLIP-66).

The contract is a stateless function of Python values, with annotations: the same arguments give the same result, today
and in a recomputation. Spark hands it Arrow batches; the values of a batch go through it one by one.

    read(name, 'module.function') -> UserFunction        what the compiler knows of it; raises FunctionProblem
    arrow.ArrowFunction(function)                        what Spark calls; runtime/landing/computed.py registers it
    reading.failure(error)  -> str | None                what a function's own exception said, out of Spark's
"""

from __future__ import annotations

from tidegate.pipelines.functions.reading import FunctionProblem, Parameter, UserFunction, read, used_in

__all__ = ["FunctionProblem", "Parameter", "UserFunction", "read", "used_in"]
