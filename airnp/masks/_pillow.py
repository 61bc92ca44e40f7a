"""Pillow, which is optional."""

from __future__ import annotations

from typing import Any


def load_pillow(what: str) -> Any:
    """Return Pillow, or raise an ImportError that says what needs it and names the extra."""
    try:
        import PIL
        import PIL.Image
        import PIL.ImageDraw
        import PIL.ImageFont
    except ImportError as error:
        raise ImportError(f'{what} needs Pillow: pip install "airnp[images]"') from error
    return PIL
