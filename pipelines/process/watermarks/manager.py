"""Where a process function emits watermarks: only what it has declared, remembered in the order in which it came."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidegate.pipelines.process.errors import InvalidDeclaration, UndeclaredWatermark
from tidegate.pipelines.process.watermarks.combining import by_identifier
from tidegate.pipelines.process.watermarks.declarations import GeneralizedWatermark, WatermarkDeclaration


class WatermarkManager:
    """Sends watermarks to the outputs of a process function.

    Args:
        declarations: What the function may emit.
        send: Where it goes.
    """

    def __init__(
        self, declarations: Iterable[WatermarkDeclaration], send: Callable[[GeneralizedWatermark], None]
    ) -> None:
        self._declared = by_identifier(declarations)
        self._send = send

    def emit_watermark(self, watermark: GeneralizedWatermark) -> None:
        """Send `watermark` to every output.

        Raises:
            UndeclaredWatermark: Its name is not among the function's declarations.
            InvalidDeclaration: It is none, or of another type than its declaration.
        """
        if not isinstance(watermark, GeneralizedWatermark):
            raise InvalidDeclaration(f"{watermark!r} is no watermark: make one with new_watermark of its declaration")
        declaration = self._declared.get(watermark.identifier)
        if declaration is None:
            raise UndeclaredWatermark(watermark.identifier, sorted(self._declared))
        if type(declaration.new_watermark(watermark.value)) is not type(watermark):  # type: ignore[arg-type]
            raise InvalidDeclaration(f"watermark {watermark.identifier!r} was declared as another type")
        self._send(watermark)
