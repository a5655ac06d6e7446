"""docs/dst.svg is what its script draws now, and the script draws what timerq's own calendar says."""

from __future__ import annotations

import re
import runpy
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime, timedelta
from pathlib import Path

from timerq import preview

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "dst_picture"))
SVG = "{http://www.w3.org/2000/svg}"
CHANGES = (datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 10, 25, 1, tzinfo=UTC))


def committed() -> str:
    return (ROOT / "docs" / "dst.svg").read_text(encoding="utf-8")


def test_the_committed_picture_is_what_the_script_draws() -> None:
    assert committed() == SCRIPT["draw"](), "run scripts/dst_picture"


def test_each_mark_stands_where_the_public_preview_has_an_instant() -> None:
    marks = [
        (float(mark.attrib["cx"]), float(mark.attrib["cy"]))
        for mark in ElementTree.fromstring(committed()).iter(f"{SVG}circle")
    ]
    for panel, change in zip(SCRIPT["PANELS"], CHANGES, strict=True):
        for row in panel.rows:
            rule = row.rule
            since = change - timedelta(hours=SCRIPT["BEFORE"])
            until = change + timedelta(hours=SCRIPT["AFTER"])
            due = preview(
                cron=rule.cron,
                timezone=rule.timezone,
                dst_gap=rule.dst_gap,
                dst_overlap=rule.dst_overlap,
                after=since - timedelta(milliseconds=1),
                n=20,
            )
            wanted = [SCRIPT["x_of"](at, change) for at in due if at <= until]
            mine, marks = marks[: len(wanted)], marks[len(wanted) :]
            assert [x for x, _ in mine] == wanted, (rule, row.words)
            assert len({y for _, y in mine}) <= 1
    assert not marks


def test_every_setting_of_a_clock_change_is_in_it() -> None:
    rules = [row.rule for panel in SCRIPT["PANELS"] for row in panel.rows]
    assert {rule.dst_gap for rule in rules} == {"shift", "skip"}
    assert {rule.dst_overlap for rule in rules} == {"first", "second", "both"}


def test_it_can_be_read_without_being_seen_and_on_light_and_dark() -> None:
    root = ElementTree.fromstring(committed())
    assert root.attrib["role"] == "img"
    named = {element.attrib.get("id"): element.text for element in root if element.attrib.get("id")}
    assert all(named[name] for name in root.attrib["aria-labelledby"].split())
    assert "02:30 CEST, 02:30 CET" in (named["desc"] or "")
    style = root.findtext(f"{SVG}style") or ""
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    coloured = re.compile(r"\.?([a-z]+) \{[^}]*(?:fill|stroke): #")
    # no colour is left over from the other one
    assert set(coloured.findall(light)) == set(coloured.findall(dark))
