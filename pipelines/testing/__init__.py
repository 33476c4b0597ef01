"""For tests, Tidegate's own and its users': a session, a harness that drives a script by hand, and what every connector
has to pass.

    harness = Harness(Path("pipeline.sql"), spark, tmp_path, scripted=True)          # docs/testing.md
    TestJsonFolder = connector_tests(CONNECTOR, DDL, feed)                           # docs/connectors.md
"""

from tidegate.pipelines.testing.connectors import connector_tests
from tidegate.pipelines.testing.harness import SMALL, Harness, spark_session
from tidegate.pipelines.testing.rules import RuleBroken

__all__ = ["SMALL", "Harness", "RuleBroken", "connector_tests", "spark_session"]
