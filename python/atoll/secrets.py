"""Masks what looks like a secret in a command line before it is recorded.

A token is known by its shape (each issuer's prefix), by the option or variable that carries it, or by its
place in a URL. What is masked keeps its first characters, so that a reader sees which token it was. This is a
help against mistakes, no guarantee: `--no-record-command` records nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["MASK", "mask", "mask_command"]

MASK = "***"

# Prefixes that issuers chose so that scanners find their tokens, each with what follows them.
_SHAPES = re.compile(
    r"""(?x)(?<![A-Za-z0-9_-])(
      gh[pousr]_ (?=[A-Za-z0-9]{20})        | github_pat_ (?=[A-Za-z0-9_]{20})     # GitHub
    | gl(?:pat|dt|rt|ptt|cbt|ft|soat|imt|agent)- (?=[A-Za-z0-9_.-]{16})            # GitLab
    | npm_ (?=[A-Za-z0-9]{30})              | pypi-(?=[A-Za-z0-9_-]{40})           # registries
    | cio(?=[A-Za-z0-9]{32}(?![A-Za-z0-9])) | rubygems_(?=[0-9a-f]{40})
    | dckr_pat_ (?=[A-Za-z0-9_-]{20})       | NRAK-(?=[A-Z0-9]{20})
    | (?:AKIA|ASIA|ABIA|ACCA)(?=[A-Z0-9]{16}(?![A-Z0-9]))                          # AWS key ids
    | AIza(?=[A-Za-z0-9_-]{30})             | ya29\.(?=[A-Za-z0-9_-]{20})          # Google
    | GOCSPX-(?=[A-Za-z0-9_-]{20})
    | xox[abeoprs]-(?=[A-Za-z0-9-]{10})     | xapp-(?=[A-Za-z0-9-]{10})            # Slack
    | (?:sk|rk|pk)_(?:live|test)_(?=[A-Za-z0-9]{10}) | whsec_(?=[A-Za-z0-9]{20})   # Stripe
    | sk-(?:ant-|proj-|or-|svcacct-)?(?=[A-Za-z0-9_-]{20})                         # model providers
    | gsk_(?=[A-Za-z0-9]{20})               | hf_(?=[A-Za-z0-9]{20}) | r8_(?=[A-Za-z0-9]{20})
    | xai-(?=[A-Za-z0-9]{20})               | pplx-(?=[A-Za-z0-9]{20})
    | do[oprt]_v1_(?=[0-9a-f]{20})          | dapi(?=[0-9a-f]{32})                 # DigitalOcean, Databricks
    | hvs\.(?=[A-Za-z0-9_-]{20})            | s\.(?=[A-Za-z0-9]{24}(?![A-Za-z0-9]))  # Vault
    | SG\.(?=[A-Za-z0-9_-]{16,}\.)          | key-(?=[0-9a-f]{32})                 # SendGrid, Mailgun
    | lin_api_(?=[A-Za-z0-9]{20})           | ATATT3(?=[A-Za-z0-9_=-]{20})         # Linear, Atlassian
    | sntrys_(?=[A-Za-z0-9_=-]{20})         | glsa_(?=[A-Za-z0-9_]{20})            # Sentry, Grafana
    | pul-(?=[0-9a-f]{40})                  | tfp_(?=[A-Za-z0-9]{20}) | shpat_(?=[0-9a-f]{32})
    | AGE-SECRET-KEY-(?=[A-Z0-9]{20})
    )[A-Za-z0-9_.=~+/-]+"""
)
# A JSON Web Token: three parts in base64, the first two of which begin a JSON object.
_JWT = re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*")
_PRIVATE_KEY = re.compile(
    r"-----BEGIN ([A-Z0-9 ]*PRIVATE KEY[A-Z ]*)-----.*?(?:-----END \1-----|\Z)", re.DOTALL
)
# `https://user:secret@host`, also with the token alone in the user's place.
_URL = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*://)([^/\s:@]*)(:[^/\s@]*)?@")
_HEADER = re.compile(
    r"(?i)\b((?:proxy-)?authorization\s*[:=]\s*(?:(?:basic|bearer|token|digest|negotiate|apikey)\s+)?"
    r"|(?:bearer|x-api-key\s*:|private-token\s*:|x-auth-token\s*:|cookie\s*:)\s*)([^\s'\",;]{6,})"
)
_SECRET_WORD = (
    r"(?:password|passwd|passphrase|pwd|secret|token|api[_-]?key|apikey|access[_-]?key|private[_-]?key|auth[_-]?key"
    r"|client[_-]?secret|credentials?|account[_-]?key|signing[_-]?key|encryption[_-]?key|session[_-]?key|_auth)"
)
# `NAME_TOKEN=value`, `--api-key=value`, `"password": "value"`, also inside of a longer argument.
_ASSIGNMENT = re.compile(
    rf"(?i)((?:[\w.-]*{_SECRET_WORD}(?:[_-]?(?:id|key|value|base64|b64|[0-9]+))?)[\"']?\s*(?:=|:\s?)\s*)"
    r"(\"[^\"]*\"|'[^']*'|[^\s&;,'\"}]+)"
)
# An option whose value is the next argument.
_OPTION = re.compile(rf"(?i)^--?(?:[\w.-]*[-_.])?{_SECRET_WORD}$")
_HARMLESS = re.compile(r"(?i)^(?:true|false|none|null|yes|no|[0-9]{1,5}|\$\{?\w+\}?|\$\(.*)$")


def _hide(match: re.Match[str]) -> str:
    value = match[2]
    quote = value[0] if value[:1] in "\"'" and value[-1:] == value[:1] else ""
    if _HARMLESS.match(value.strip("\"'")) or value.strip("\"'") in ("", MASK):
        return match[0]
    return f"{match[1]}{quote}{MASK}{quote}"


def mask(text: str) -> str:
    """One argument with what looks like a secret masked."""
    text = _PRIVATE_KEY.sub(lambda match: f"-----BEGIN {match[1]}-----{MASK}", text)
    text = _URL.sub(
        lambda match: match[0] if not match[3] and len(match[2]) < 20 else f"{match[1]}{_user(match)}@", text
    )
    text = _JWT.sub("eyJ" + MASK, text)
    text = _SHAPES.sub(lambda match: match[1] + MASK, text)
    text = _HEADER.sub(_hide, text)
    return _ASSIGNMENT.sub(_hide, text)


def _user(match: re.Match[str]) -> str:
    # A long user name without a password is a token itself.
    return f"{match[2]}:{MASK}" if match[3] else MASK


def mask_command(command: Iterable[str]) -> list[str]:
    """A command line with what looks like a secret masked."""
    masked: list[str] = []
    value_follows = False
    for word in command:
        if value_follows and not word.startswith("-") and not _HARMLESS.match(word):
            masked.append(MASK)
        else:
            masked.append(mask(word))
        value_follows = _OPTION.match(word) is not None
    return masked
