"""What may be a secret: by the name of a variable, or by a value. `validate` and `convert` share this rule."""

import re

_WORDS = (
    r"PASSWORD|PASSWD|PASSPHRASE|PASS|SECRET|SECRETS|TOKEN|CREDENTIALS?|APIKEY|JWT|"
    r"(?:API|ACCESS|SECRET|PRIVATE|ENCRYPTION|SIGNING|LICENSE|AUTH)_?KEY"
)
_NAME = re.compile(rf"(?:^|_)(?:{_WORDS})(?:_ID|_VALUE|_B64|_BASE64|_?\d{{1,2}})?$", re.IGNORECASE)
"""Whole words at the end of a name: HF_TOKEN and AWS_ACCESS_KEY_ID, but not MAX_TOKENS and TOKENIZERS_PARALLELISM."""
_HARMLESS = re.compile(r"(?:\d{1,6}(?:\.\d+)?|true|false|yes|no|on|off|none|null)?", re.IGNORECASE)
"""Values of settings, which no secret has."""
_VALUE = re.compile(
    r"(?:hf_|sk-|nvapi-|glpat-|xox[abprs]-|gh[pousr]_|github_pat_|AKIA|ASIA)[A-Za-z0-9_-]{12,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+\..*|-----BEGIN [A-Z ]*PRIVATE KEY.*",
    re.DOTALL,
)
"""Values that services give out as keys."""
_LOGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@", re.IGNORECASE)
"""A URL with a password."""
_LONGEST = 4096


def may_hold_secret(name: str, value: str) -> bool:
    """Whether a variable may hold a secret."""
    return is_secret(value) or (_NAME.search(name) is not None and _HARMLESS.fullmatch(value) is None)


def is_secret(value: str) -> bool:
    """Whether a value is a secret by its form."""
    start = value[:_LONGEST]
    return _VALUE.match(start) is not None or _LOGIN.search(start) is not None
