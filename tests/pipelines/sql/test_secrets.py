"""A secret in a script is shown nowhere, whatever is wrong with the script."""

from __future__ import annotations

import io
import logging
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.cases import searched
from tests.pipelines.sql.connectors import CONNECTORS
from tidegate.pipelines.sql import SqlError, compile_script, describe, explain, show_create_table
from tidegate.pipelines.syntax.secrets import SECRET_NAMES, is_secret

SECRET = "hunter2-Kx9"
PROXY_SECRET = "swordfish-Qz4"
SCRIPT = """
CREATE TABLE users (
    id INT PRIMARY KEY NOT ENFORCED, name STRING
) WITH (
    'connector' = 'mysql-cdc', 'hostname' = 'localhost', 'username' = 'root',
    'password' = '{SECRET}',
    'database-name' = 'd', 'table-name' = 't', 'jdbc.properties.trustStorePassword' = '{SECRET}',
    'jdbc.properties.proxy' = 'http://me:{PROXY_SECRET}@proxy:80/'
);
CREATE TABLE clicks (user_id INT, pt AS PROCTIME()) WITH ('connector' = 'datagen');
CREATE TABLE sink (id INT, name STRING) WITH ('connector' = 'print');
INSERT INTO sink SELECT user_id, name FROM clicks LEFT JOIN users FOR SYSTEM_TIME AS OF clicks.pt ON user_id = id;
""".replace("{SECRET}", SECRET).replace("{PROXY_SECRET}", PROXY_SECRET)


def everything(error: BaseException) -> str:
    """All that a log, a debugger or Dagster would keep of an error."""
    return "".join(traceback.format_exception(error)) + repr(error) + repr(error.__dict__) + str(error.args)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("properties.ssl.keystore.key", True),
        ("properties.sasl.jaas.config", True),
        ("properties.ssl.keystore.certificate.chain", False),
        ("properties.ssl.keystore.location", False),
        ("key", False),
        ("key.fields", False),
        ("scan.key-partitions.check", False),
        *(
            (name, True)
            for name in ("pwd", "PGPASSWORD", "MYSQL_PWD", "DBPWD", "dbPwd", "userpwd", "PWD_OF_ROOT", "db.pwds")
        ),
        *(
            (name, True)
            for name in ("token", "GITHUB_TOKEN", "authToken", "authtoken", "TOKENS", "tokenFile", "PGPASSWORD")
        ),
        *((name, True) for name in ("password", "db.Password", "api-key", "privateKey", "secret")),
        *((name, True) for name in ("pasword", "passwrod", "tokenn")),
        *((name, False) for name in ("PWD", "OLDPWD", "TOKENIZERS_PARALLELISM", "tokenizer.path", "INIT_CWD")),
        *(
            (name, False)
            for name in ("username", "table-name", "topic", "scan.startup.mode", "broken", "pass-by", "key")
        ),
    ],
)
def test_names_of_secrets(name: str, secret: bool) -> None:
    assert is_secret(name) == secret


def test_java_takes_the_same_names_for_secrets(spark: SparkSession) -> None:
    """Spark hides the values of settings that are called so."""
    names = ["MYSQL_PWD", "authToken", "x.PASSWORD", "PWD", "OLDPWD", "TOKENIZERS_PARALLELISM"]
    found = spark.createDataFrame([(name,) for name in names], "name STRING").select(
        F.regexp_extract("name", SECRET_NAMES, 0) != ""
    )
    assert [row[0] for row in found.collect()] == [is_secret(name) for name in names]


def test_a_pipeline_shows_no_secret() -> None:
    pipeline = compile_script(SCRIPT, connectors=CONNECTORS)
    users = pipeline.table("users")
    shown = [explain(pipeline), describe(users), show_create_table(users), repr(pipeline), str(users.options)]
    assert all(SECRET not in text and PROXY_SECRET not in text for text in shown)
    assert "'http://me:***@proxy:80/'" in show_create_table(users)
    assert users.options["password"] == SECRET


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("'password' =", "'pasword' ="),
        ("'password' =", "'roassword' ="),
        (f"'password' = '{SECRET}'", f"'password' = '{SECRET}' 'x'"),
        (f"'password' = '{SECRET}'", f"'password' = '{SECRET}"),
        (f"'password' = '{SECRET}'", f"'password = '{SECRET}'"),
        (f"'password' = '{SECRET}'", f"password' = '{SECRET}'"),
        (f"'password' = '{SECRET}'", f"'password' = {SECRET}"),
        (f"'password' = '{SECRET}'", f"'password' = \"{SECRET}\""),
        (f"'password' = '{SECRET}'", f"'password' '{SECRET}'"),
        (f"'password' = '{SECRET}'", f"'password' == '{SECRET}'"),
        (f"'password' = '{SECRET}'", f"'password' = 'it's {SECRET}'"),
        (f"'password' = '{SECRET}'", f"'password'\n  =\n  '{SECRET}' x"),
        (f"'password' = '{SECRET}'", f"'password' = '{SECRET}', 'password' = '{SECRET}'"),
        ("'username' = 'root',", "'username' = 'root,"),
        ("'hostname' = 'localhost',", "'hostname' = localhost',"),
        ("'table-name' = 't',", "'table-name' = t',"),
        ("INSERT", "INSRT"),
        ("'jdbc.properties.proxy'", "'jdbc.propertis.proxy'"),
        ("'jdbc.properties.proxy' =", "/* 'jdbc.properties.proxy'"),
    ],
)
def test_a_secret_beside_a_mistake_is_not_shown(old: str, new: str) -> None:
    broken = SCRIPT.replace(old, new, 1)
    assert broken != SCRIPT
    with pytest.raises(SqlError) as caught:
        compile_script(broken, connectors=CONNECTORS)
    assert SECRET not in everything(caught.value)
    assert PROXY_SECRET not in everything(caught.value)


@searched(400)
@given(st.data())
def test_any_script_compiles_or_is_an_sql_error_that_shows_no_secret(data: st.DataObject) -> None:
    """Characters removed, doubled or exchanged, anywhere; a quote too many or too few shifts what is a string."""
    text = SCRIPT
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 12))
        new = data.draw(st.sampled_from([*"'`\"(),;= é\n1", "--", "/*", "SELECT", ""]))
        text = text[:at] + new + text[at + gone :]
    pieces = {SECRET, SECRET[:7], SECRET[-7:]}
    try:
        compile_script(text, connectors=CONNECTORS)
    except SqlError as error:
        kept = everything(error)
        if not any(piece in kept for piece in pieces):
            return
        # What no longer follows a word for a secret cannot be told apart from any other text.
        shown = next(line for line in str(error).split("\n") if any(piece in line for piece in pieces))
        assert "assword" not in shown.split("hunter")[0].replace("'password' = ***", "")


def test_nothing_is_logged() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger().addHandler(handler)
    try:
        compile_script(SCRIPT, connectors=CONNECTORS)
        with pytest.raises(SqlError):
            compile_script(SCRIPT.replace("INSERT", "INSRT"), connectors=CONNECTORS)
    finally:
        logging.getLogger().removeHandler(handler)
    assert SECRET not in stream.getvalue()


def test_an_unknown_setting_s_secret_is_not_shown() -> None:
    with pytest.raises(SqlError, match="there is no setting") as caught:
        compile_script(f"SET 'broker.password' = '{SECRET}'", connectors=CONNECTORS)
    assert SECRET not in everything(caught.value)
