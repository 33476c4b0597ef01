"""The events of FLIP-499's news example, hour by hour, and what plain numpy answers to it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

KEYS, HOUR = 20_000, 3_600_000
AFTER = (60_000, 300_000, 600_000, 1_800_000, HOUR)
"""How long after its release a news's clicks are counted (ms)."""


def events(epoch: int, rows: int) -> pa.Table:
    """An hour of clicks in no order, and its last moment at the end; all news are released in the very first second."""
    chosen = np.random.default_rng(epoch)
    # Nothing is as late as the hour's first moment, which is the last one of the hour before: Spark would leave it out.
    news, at = chosen.integers(0, KEYS, rows), epoch * HOUR + chosen.integers(1, HOUR, rows)
    released = min(KEYS, rows - 1) if epoch == 0 else 0
    news[:released], at[:released] = np.arange(released), chosen.integers(1, 1_000, released)
    at[-1] = (epoch + 1) * HOUR
    kind = ["RELEASE"] * released + ["CLICK"] * (rows - released)
    return pa.table({"type": kind, "news_id": news, "at": at})


def counts(hours: Sequence[pa.Table]) -> pa.Table:
    """news_id, after, clicks: one row for each news and each of AFTER, sorted."""
    articles = pa.concat_tables(hours)
    news, at = articles.column("news_id").to_numpy(), articles.column("at").to_numpy()
    release = np.asarray(articles.column("type").to_pylist()) == "RELEASE"
    # One number for (news, time), so that one sorted array answers for every news.
    clicks = np.sort(news[~release] << 40 | at[~release])
    order = np.argsort(news[release])
    released, since = news[release][order], at[release][order]
    found = np.stack([np.searchsorted(clicks, released << 40 | (since + after), side="right") for after in AFTER], 1)
    found -= np.searchsorted(clicks, released << 40, side="left")[:, None]
    return pa.table(
        {
            "news_id": np.repeat(released, len(AFTER)),
            "after": np.tile(np.array(AFTER), len(released)),
            "clicks": found.reshape(-1),
        }
    )
