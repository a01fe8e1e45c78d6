"""The rules that every card keeps, whatever it shows."""

import re
from html.parser import HTMLParser

TAGS = {"div", "span", "b", "i", "s", "table", "thead", "tbody", "tr", "th", "td", "code"}
PROPERTIES = {
    "background", "border", "border-bottom", "border-collapse", "border-radius", "border-top", "display", "font-family",
    "font-size", "font-variant-numeric", "font-weight", "height", "line-height", "margin", "margin-right", "margin-top",
    "max-width", "opacity", "overflow", "overflow-wrap", "overflow-x", "padding", "table-layout", "text-align", "white-space", "width",
}  # fmt: skip
#: What a style may be made of: no ``url()``, no ``expression()``, no comment, no escape.
STYLE = re.compile(
    r"(?:[a-z-]+:[#%.,a-z0-9 -]*(?:rgba\([0-9.,]+\)|var\(--jp-(?:ui|code)-font-family,[a-z,-]+\))?[a-z ]*;?)+"
)
SIZE_MAX = 60_000
WIDTH_MAX = 640
CHARACTER_WIDTH = 7.2

IMAGE = "<img src=x onerror=alert(1)>"
#: What must not come through as it is.
HOSTILE = [
    IMAGE,
    "</td></table><script>alert(1)</script>",
    '"><svg onload=alert(1)>',
    "' style='position:fixed",
    "&lt;b&gt; &amp;nbsp;",
    "x" * 5_000,
    "a b " * 1_500,
    "\x00\x07\x1b[31m\r\n\t",
    "\u202edlrow\u2066\u200b\ufeff",
    "\ud800 lone",
    "漢字" * 400,
    "e" + "\u0301" * 300,
    "/".join(["very", "long"] * 200),
]
#: Names of these as tests have them.
IDS = [str(number) for number in range(len(HOSTILE))]


class Card(HTMLParser):
    """A card taken apart; a rule that it breaks is an AssertionError."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.open = []
        self.roots = 0
        self.tables = []
        self.texts = []
        self.feed(html)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        assert tag in TAGS, tag
        styles = {}
        for name, value in attributes:
            assert name == "style", (tag, name)
            assert STYLE.fullmatch(value), value
            for each in filter(None, value.split(";")):
                key, _, what = each.partition(":")
                assert key in PROPERTIES, key
                styles[key] = what
        if not self.open:
            self.roots += 1
            assert tag == "div"
            assert styles["max-width"] == f"{WIDTH_MAX}px"
        self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in {"td", "th"}:
            padding = int(styles["padding"].split()[1].removesuffix("px"))
            self.tables[-1][-1].append(["", padding, styles["text-align"]])

    def handle_endtag(self, tag):
        assert self.open, f"closed before it was open: {tag}"
        assert self.open.pop() == tag

    def handle_data(self, data):
        assert self.open, data
        # Nothing without a shape of its own, but for the space that cannot break.
        assert data.replace("\xa0", " ").isprintable(), data
        self.texts.append(data)
        if self.open and ("td" in self.open or "th" in self.open):
            self.tables[-1][-1][-1][0] += data

    def handle_comment(self, data):
        raise AssertionError(data)

    handle_decl = handle_pi = unknown_decl = handle_comment

    @property
    def text(self):
        return "".join(self.texts)


def check_card(html, rows_max=10):
    """Assert that a card (or several, one below the other) keeps the rules; return it taken apart."""
    assert len(html.encode()) <= SIZE_MAX, len(html.encode())
    card = Card(html)
    assert card.roots >= 1
    for table in card.tables:
        head, *rows = table
        assert len(rows) <= rows_max, len(rows)
        assert all(len(row) == len(head) for row in rows)
        widths = [
            max(len(row[index][0]) * CHARACTER_WIDTH + 2 * row[index][1] for row in table) for index in range(len(head))
        ]
        # What is one column only is cut by the card's own edge at worst.
        assert sum(widths) <= WIDTH_MAX or len(head) == 1, (sum(widths), [cell[0] for cell in head])
        for index in range(len(head)):
            numbers = [row[index] for row in rows if re.fullmatch(r"-?[\d,]+", row[index][0])]
            if rows and len(numbers) == len(rows):
                assert {cell[2] for cell in numbers} <= {"right"} or head[index][0] in {
                    "partition",
                    "change",
                    "tailnum",
                }, head[index]
    return card


def check_repr(text, lines_max=12):
    """Assert that a repr is short and safe for a terminal."""
    lines = text.split("\n")
    assert len(lines) <= lines_max, len(lines)
    assert all(line.isprintable() for line in lines), text
    assert max(map(len, lines)) <= 1_500, max(map(len, lines))


def check(thing, rows_max=10, lines_max=12):
    """Assert that an object shows itself as all do."""
    check_repr(repr(thing), lines_max)
    return check_card(thing._repr_html_(), rows_max)
