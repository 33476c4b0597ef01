"""Polars' join_asof, Parquet to Parquet. Run by benchmarks.peers in an environment of its own:
`peer_polars.py PROBES BUILD OUT` prints the seconds of the second of two runs."""

import sys
import time

import polars as pl  # pyright: ignore[reportMissingImports]


def main(orders: str, rates: str, out: str) -> None:
    """As the other peers: id, amount, rate and label of every probe row."""
    probes = pl.scan_parquet(orders).select("id", "currency", "amount", "_rowtime").sort("_rowtime")
    versions = pl.scan_parquet(rates).select("currency", "rate", "label", "_rowtime").sort("_rowtime")
    met = probes.join_asof(versions, on="_rowtime", by="currency", strategy="backward", check_sortedness=False)
    met.select("id", "amount", "rate", "label").collect().write_parquet(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
    start = time.perf_counter()
    main(*sys.argv[1:])
    print(time.perf_counter() - start)
