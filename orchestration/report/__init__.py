"""`tidegate report`: one HTML page of a pipeline on its lake, with nothing from elsewhere in it.

facts.py    what the lake's control tables say, read by delta-rs
svg.py      the pictures, as inline SVG
page.py     the page
"""

from orchestration.report.facts import Facts, gather
from orchestration.report.page import render

__all__ = ["Facts", "gather", "render"]
