"""The essentials of accessibility, checked in the browser itself, on computed styles.

Not all of WCAG, only what a careless edit could break on our pages: landmarks, headings, names of
controls and pictures, labels, references, contrast of text and of shapes, size of targets, visible
focus, and no sideways scrolling.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Page

_CHECK = Path(__file__).with_name("accessibility.js").read_text("utf-8")

_FOCUSED = r"""
() => {
  const element = document.activeElement;
  if (!element || element === document.body) return null;
  const style = getComputedStyle(element);
  return {
    what: element.outerHTML.slice(0, 100),
    seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
  };
}
"""


def problems(page: Page) -> list[str]:
    found: list[str] = page.evaluate(_CHECK)
    return found


def unseen_focus(page: Page, *, steps: int) -> list[str]:
    """Elements that the tab key reaches although they are invisible."""
    found = []
    for _ in range(steps):
        page.keyboard.press("Tab")
        focused: dict[str, Any] | None = page.evaluate(_FOCUSED)
        if focused is None:
            break
        if not focused["seen"]:
            found.append(focused["what"])
    return found
