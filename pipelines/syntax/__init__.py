"""How a script is written: its tokens, types and statements, each with its place. Knows no table and no connector."""
