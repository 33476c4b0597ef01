"""What a record is that any renderer can show: it imports neither the lake nor the runtime.

kinds.py       what a fact is, and how a renderer learns its type, its heading, and a record's sentences
document.py    a record as JSON
failure.py     an error as a record
"""
