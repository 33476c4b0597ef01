from dataclasses import replace
from datetime import timedelta

import pytest

from tidegate.orchestration.alerts import AlertOptions
from tidegate.orchestration.components import TidegateAlerts
from tidegate.pipelines.errors import PlanningError


def test_the_environment_fills_what_was_left_open():
    given = AlertOptions(max_lag=timedelta(minutes=1))
    found = given.of_environment(
        {
            "TIDEGATE_ALERT_MAX_LAG": "9 h",
            "TIDEGATE_ALERT_FLIP_WITHIN": "2 h",
            "TIDEGATE_ALERT_RETENTION_LEFT": "0.5",
            "TIDEGATE_ALERT_QUARANTINE_ROWS": "7",
            "TIDEGATE_ALERT_KEYS": "0",
            "TIDEGATE_DAGSTER_URL": "https://dagster.example.com/",
        }
    )
    assert found == AlertOptions(
        max_lag=timedelta(minutes=1),
        flip_within=timedelta(hours=2),
        retention_left=0.5,
        quarantine_rows=7,
        keys=0,
        dagster_url="https://dagster.example.com",
    )


def test_a_component_that_writes_the_default_means_it():
    variables = {"TIDEGATE_ALERT_MAX_LAG": "9 h", "TIDEGATE_ALERT_KEYS": "3"}
    found = TidegateAlerts(channels=[], max_lag="15 min").options().of_environment(variables)
    assert (found.max_lag, found.keys) == (timedelta(minutes=15), 3)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TIDEGATE_ALERT_FLIP_WITHIN", "soon"),
        ("TIDEGATE_ALERT_QUARANTINE_ROWS", "many"),
        ("TIDEGATE_ALERT_RETENTION_LEFT", "2"),
        ("TIDEGATE_ALERT_QUARANTINE_ROWS", "-1"),
        ("TIDEGATE_ALERT_QUARANTINE_WINDOW", "0 s"),
        ("TIDEGATE_ALERT_KEYS", "-1"),
    ],
)
def test_a_value_that_cannot_be_is_named(variable: str, value: str):
    with pytest.raises(PlanningError, match=rf"\${variable}"):
        AlertOptions().of_environment({variable: value})


@pytest.mark.parametrize(
    "given",
    [
        {"flip_within": timedelta(seconds=-1)},
        {"max_lag": timedelta(seconds=-1)},
        {"quarantine_window": timedelta(hours=-1)},
        {"quarantine_window": timedelta(0)},
    ],
)
def test_a_time_of_less_than_nothing_is_refused_from_python_too(given: dict[str, timedelta]):
    (name,) = given
    with pytest.raises(PlanningError, match=f"{name} is .*, and must be"):
        replace(AlertOptions(), **given)  # type: ignore[arg-type]


def test_nothing_at_all_may_be_borne():
    assert AlertOptions(flip_within=timedelta(0), max_lag=timedelta(0)).max_lag == timedelta(0)


def test_a_channel_with_its_secret_written_out_is_refused():
    with pytest.raises(PlanningError, match="written out") as refused:
        AlertOptions(channels=("slack://T0KEN/#data",))
    assert "T0KEN" not in str(refused.value)


def test_the_component_gives_the_same_options():
    found = TidegateAlerts(channels=["${OPS}"], flip_within="1 h", quarantine_rows=3)
    assert found.options() == AlertOptions(("${OPS}",), flip_within=timedelta(hours=1), quarantine_rows=3)
    with pytest.raises(PlanningError, match="max_lag is 'soon'"):
        TidegateAlerts(max_lag="soon").options()
