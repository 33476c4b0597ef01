"""Generalised watermarks (FLIP-467): declared, combined over channels, emitted. Event time is two of them."""
