"""The tables of documents, made of the report that is kept: between two marks, and by nobody's hand."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.growth.growth_report import GrowthReport, long_table, short_table
from benchmarks.growth.log_picture import picture

ROOT: Final = Path(__file__).parents[2]
REPORT: Final = Path("docs") / "growth.json"
PICTURES: Final = Path("docs") / "pictures"
BEGIN: Final = "<!-- of docs/growth.json: python -m benchmarks growth --documents -->"
END: Final = "<!-- end -->"


def documents(root: Path = ROOT) -> dict[Path, str]:
    """Return what the files are that are made of the kept report, by their paths in the checkout.

    Raises:
        ValueError: A document has not the two marks.
    """
    report = GrowthReport.from_json((root / REPORT).read_text())
    found = {
        Path("README.md"): between((root / "README.md").read_text(), short_table(report)),
        Path("docs") / "performance.md": between((root / "docs" / "performance.md").read_text(), _long(report)),
    }
    return found | {PICTURES / f"growth-{axis.name}.svg": picture(axis) for axis in report.axes}


def write(root: Path = ROOT) -> None:
    """Write them."""
    for path, text in documents(root).items():
        (root / path).write_text(text)


def between(text: str, table: str) -> str:
    """Return a document with a table between its marks.

    Raises:
        ValueError: It has not both marks, once each.
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"a document without the marks {BEGIN} and {END}, once each")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def _long(report: GrowthReport) -> str:
    parts = []
    for axis in report.axes:
        parts += [
            f"**{axis.name.capitalize()}**: {axis.about} ({axis.machine}).",
            long_table(axis),
            f"![CPU by {axis.name}](pictures/growth-{axis.name}.svg)",
        ]
    return "\n\n".join(parts)
