"""The grammar, layer upon layer on sqlglot's parser: tokens, types, expressions, CREATE TABLE, INSERT."""
