"""The screen Changelog, run by node: records and their times, the live tail, and what has the focus."""

from tests.unit.explorer.view_kit import run_view


def test_a_record_has_its_date_in_its_detail_and_in_the_list_when_it_is_not_of_today():
    """Today is that of the lab's zone."""
    listed, detail = run_view(
        "changelog",
        """
    tell("schema", SCHEMA);
    explorer.offsetMs = 4 * 3600e3;
    tell("changes", { ...CHANGES, ...records(1, 3), times: ["2026-01-02 14:00:00.250", "2026-07-01 23:59:59", "2026-07-02 14:00:00.001"] });
    const rows = screen().list.root.querySelectorAll("tr.pick");
    found.push(rows.map((row) => row.children[3].textContent));
    rows[0].click();
    found.push(screen().side.textContent);
    """,
    )
    assert listed == ["14:00:00.001", "2026-07-01 23:59:59", "2026-01-02 14:00:00.250"]
    assert "2026-07-02 14:00:00.001" in detail
