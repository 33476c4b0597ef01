"""Which names and values are secret, so that none is shown, and which values come from the environment."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import lru_cache

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
SECRET_NAMES = (
    r"(?i:assword|passwd|secret|credential|passphrase|(private|access|api|keystore).?key|jaas)"
    r"|([Tt]oken|[Pp]wd)s?(?![a-z])|TOKENS?(?![A-Z])"
    r"|(?!(?<=^)PWD$)(?!(?<=^OLD)PWD$)PWDS?(?![A-Z])"
)
"""A regular expression, for Python and for Java, of names whose values are secrets; `ssl.keystore.key` is a private key
as text, and `assword` matches a misspelt password too. `token` and `pwd` must end a part of a name
(TOKENIZERS_PARALLELISM is no secret); a shell's PWD and OLDPWD are folders."""
_SECRET = re.compile(SECRET_NAMES)
_SECRET_WORDS = ("password", "secret", "token", "credential", "passphrase")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
CREDENTIALS = re.compile(r"(//[^/@:\s]*):[^@\s]+@")


@lru_cache(maxsize=4096)
def is_secret(name: str) -> bool:
    """Whether the value of an option of this name must not be shown; misspellings such as `pasword` count too."""
    if _SECRET.search(name) is not None:
        return True
    return any(get_close_matches(word.lower(), _SECRET_WORDS, 1, 0.85) for word in _WORD.findall(name) if len(word) > 4)


def is_variable(value: str) -> bool:
    """Whether a value is nothing but `${VAR}`, which may be shown whatever the option is called."""
    return VARIABLE.fullmatch(value) is not None


def needs_variables(value: str) -> bool:
    """Whether the real value is known only after `${VAR}` in it is replaced."""
    return VARIABLE.search(value) is not None


def secret_words(text: str) -> list[int]:
    """The offsets at which words that name a secret end in `text`."""
    words = [found.end() for found in _WORD.finditer(text) if is_secret(found.group())]
    return sorted({*words, *(found.end() for found in _SECRET.finditer(text))})


def passwords_in(text: str) -> list[tuple[int, int]]:
    """Where passwords of addresses stand in `text` (`scheme://user:password@host`): start and end of each."""
    return [(found.end(1) + 1, found.end() - 1) for found in CREDENTIALS.finditer(text)]
