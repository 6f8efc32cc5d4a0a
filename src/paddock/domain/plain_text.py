"""Text that others chose, shown as text: names of jobs and repositories, labels, log lines.

A terminal obeys control characters: they set its title, clear it, write to the clipboard or begin a
line that paddock did not write. Bidirectional and invisible characters change what a reader sees. Such
a character is shown in JSON's notation, so that the same rule serves sentences and JSON.
"""

from __future__ import annotations

import re
from typing import Final
from unicodedata import category

#: Controls (C0 and C1), formats (bidirectional, invisible), half characters, separators of lines.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
#: Colours, movements and character sets (`tput sgr0`) in the logs of ordinary programs; without the
#: escape they are only noise. The lengths are bounded, so that no input takes more than linear time.
_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|[()][0-9A-Z])")
_TAB: Final = " " * 4


def escaped(text: str) -> str:
    """The text as one line, with hidden characters shown."""
    if text.isprintable():
        return text
    text = without_sequences(text).replace("\t", _TAB)
    return "".join(each if category(each) not in _HIDDEN else _notation(each) for each in text)


def escaped_lines(text: str) -> list[str]:
    """The same line by line, for logs and other text with line breaks."""
    return [escaped(line) for line in text.replace("\r\n", "\n").split("\n")]


def without_sequences(text: str) -> str:
    """Without colours and movements of the cursor."""
    return _SEQUENCE.sub("", text)


def _notation(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
