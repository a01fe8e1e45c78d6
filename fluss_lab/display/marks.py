"""The hues and signs of marks: one hue for the lake, one for the log, everywhere; signs for states."""

from __future__ import annotations

from typing import Final

#: Of marks, never of text: 3.6 and 3.9 on white, 5.2 and 4.8 on #111.
LAKE: Final = "#2b9498"
LOG: Final = "#8470dd"
#: Parts of a bar that belong to neither.
MUTED: Final = "rgba(128,128,128,.5)"
STRONG: Final = "rgba(128,128,128,.9)"
LINE: Final = "rgba(128,128,128,.32)"
EMPTY: Final = "rgba(128,128,128,.22)"
#: Behind a value that changed: amber, light enough for ink of either theme.
CHANGED: Final = "rgba(227,160,40,.28)"
#: Ink of pictures on a background that is not known: 4.4 on white, 4.4 on #111.
INK: Final = "#797979"

#: Signs of states, so that none is a matter of colour: failed, behind, within freshness, not in the lake.
FAILED: Final = "◆"
BEHIND: Final = "○"
WELL: Final = "●"
ABSENT: Final = "–"
