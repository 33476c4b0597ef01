"""The gate's checks, one question a module: `check(evidence) -> CheckResult`, pure, without Spark."""
