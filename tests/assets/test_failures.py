import dagster as dg
import pytest

from assets.failures import explained
from pipelines.errors import GateHeld, LeaseHeld, SourceError


def test_a_typed_error_becomes_a_failure_that_says_what_to_do():
    with pytest.raises(dg.Failure) as caught, explained():
        raise SourceError("the server is gone", where="user_info", state="nothing is lost", next_command="run again")
    failure = caught.value
    assert failure.description == "the server is gone"
    assert {name: value.value for name, value in failure.metadata.items()} == {
        "tidegate/error": "SourceError",
        "where": "user_info",
        "state": "nothing is lost",
        "next": "run again",
    }
    assert failure.allow_retries


@pytest.mark.parametrize("error", [LeaseHeld("user_info", "tidegate run, process 1 on here"), GateHeld("held")])
def test_what_a_retry_can_not_mend_is_not_retried(error):
    with pytest.raises(dg.Failure) as caught, explained():
        raise error
    assert not caught.value.allow_retries


def test_a_bug_stays_what_it_is():
    with pytest.raises(ZeroDivisionError), explained():
        _ = 1 / 0
