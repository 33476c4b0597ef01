"""Windows over event or processing time as process functions: TUMBLE, HOP, CUMULATE, SESSION; and what SQL's run on."""

from tidegate.pipelines.process.windows.function import (
    Aggregate,
    Window,
    WindowFunction,
    Windows,
    cumulate,
    hop,
    session,
    tumble,
)

__all__ = ["Aggregate", "Window", "WindowFunction", "Windows", "cumulate", "hop", "session", "tumble"]
