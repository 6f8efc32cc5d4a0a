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
#: Characters of other kinds that have no shape, as (first, last): Unicode's default ignorable ones and
#: the blank Braille pattern. Words or data can hide in them.
_SHAPELESS: Final = (
    *((0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2065, 0x2065)),
    *((0x2800, 0x2800), (0x3164, 0x3164), (0xFE00, 0xFE0D), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8)),
    (0xE0000, 0xE0FFF),
)
_INVISIBLE: Final = frozenset(
    chr(each) for first, last in _SHAPELESS for each in range(first, last + 1)
)
#: They choose the form of the emoji before them, which is common in names of jobs.
_EMOJI_FORMS: Final = frozenset("\ufe0e\ufe0f")
#: Marks on one character. No script needs more than four; dozens are drawn over the lines around them.
_MOST_MARKS: Final = 8
#: Colours, movements and character sets (`tput sgr0`) in the logs of ordinary programs; without the
#: escape they are only noise. The lengths are bounded, so that no input takes more than linear time.
_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|[()][0-9A-Z])")
_TAB: Final = " " * 4


def escaped(text: str) -> str:
    """The text as one line, with hidden characters shown."""
    if text.isascii() and text.isprintable():
        return text
    shown, marks = [], 0
    for each in without_sequences(text).replace("\t", _TAB):
        kind = category(each)
        marks = marks + 1 if kind.startswith("M") else 0
        is_hidden = (
            kind in _HIDDEN
            or each in _INVISIBLE
            or marks > (1 if each in _EMOJI_FORMS else _MOST_MARKS)
        )
        shown.append(_notation(each) if is_hidden else each)
    return "".join(shown)


def escaped_lines(text: str) -> list[str]:
    """The same line by line, for logs and other text with line breaks."""
    return [escaped(line) for line in text.replace("\r\n", "\n").split("\n")]


def without_sequences(text: str) -> str:
    """Without colours and movements of the cursor."""
    return _SEQUENCE.sub("", text)


def _notation(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
