"""`tidegate report`: one HTML page of a pipeline on its lake, with nothing from elsewhere in it. Its facts are
`pipelines.facts.report`.

flow.py     the flow as a picture: sources, joins, gates, and where the rows went
page.py     the page
"""

from tidegate.orchestration.report.page import render

__all__ = ["render"]
