"""`tidegate report`: one HTML page of a pipeline on its lake, with nothing from elsewhere in it.

facts.py    what the lake's control tables say, read by delta-rs
flow.py     the flow as a picture: sources, joins, gates, and where the rows went
page.py     the page
"""

from tidegate.orchestration.report.facts import Facts, gather
from tidegate.orchestration.report.page import render

__all__ = ["Facts", "gather", "render"]
