"""What each command finds, as frozen records that plain functions return; nothing here knows Rich, Typer or Dagster.

A module has the records of one command. Three renderers show any of them by the types of their facts
(`pipelines.records.kinds`): `orchestration.console.shown` in a terminal, `pipelines.records.document` as JSON,
`assets.metadata` in Dagster.
"""
