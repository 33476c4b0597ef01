from tidegate.pipelines.sources.formats.shape import map_literal
from tidegate.pipelines.syntax.types import spark_string


def test_a_string_literal_is_its_text_alone() -> None:
    # Spark replaces `${…}` by its own settings, whichever literal it is in; `\u0024` is the same dollar.
    assert spark_string("it's a \\d for ${spark.app.name}") == r"'it\'s a \\d for \u0024{spark.app.name}'"
    assert "${" not in map_literal({"nullValue": "${spark.app.name}"})
