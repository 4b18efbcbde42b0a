"""Tokens in command lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.secrets import MASK, mask, mask_command

LETTERS = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6"


@pytest.mark.parametrize(
    "token",
    [
        f"ghp_{LETTERS}",
        f"github_pat_{LETTERS}",
        f"glpat-{LETTERS[:20]}",
        f"npm_{LETTERS}",
        f"pypi-{LETTERS}{LETTERS}",
        f"sk-ant-api03-{LETTERS}",
        f"sk-proj-{LETTERS}",
        f"sk-{LETTERS}",
        f"hf_{LETTERS}",
        "AKIAIOSFODNN7EXAMPLE",
        f"AIza{LETTERS}",
        f"xoxb-123456789012-{LETTERS}",
        f"sk_live_{LETTERS}",
        f"dckr_pat_{LETTERS}",
        f"eyJ{LETTERS}.eyJ{LETTERS}.{LETTERS}",
    ],
)
def test_shapes(token: str) -> None:
    for text in (token, f"x={token}", f"curl -u me:{token} host", f'{{"k": "{token}"}}'):
        masked = mask(text)
        assert token not in masked
        assert LETTERS[8:20] not in masked or "AKIA" in token
        assert MASK in masked


@pytest.mark.parametrize(
    ("command", "masked"),
    [
        (["x", "--token", "abc"], ["x", "--token", "***"]),
        (["x", "--api-key=abc"], ["x", "--api-key=***"]),
        (["x", "--db-password", "p w"], ["x", "--db-password", "***"]),
        (["env", "API_TOKEN=abc", "cmd"], ["env", "API_TOKEN=***", "cmd"]),
        (["sh", "-c", "MY_SECRET='a b' run"], ["sh", "-c", "MY_SECRET='***' run"]),
        (["git", "clone", "https://me:pw@host/r"], ["git", "clone", "https://me:***@host/r"]),
        (["curl", "-H", "Authorization: Bearer abcdefgh"], ["curl", "-H", "Authorization: Bearer ***"]),
        (["curl", "-H", "X-Api-Key: abcdefgh"], ["curl", "-H", "X-Api-Key: ***"]),
        (["x", "AWS_SECRET_ACCESS_KEY=ab/cd+ef"], ["x", "AWS_SECRET_ACCESS_KEY=***"]),
        (
            ["x", "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----"],
            ["x", "-----BEGIN RSA PRIVATE KEY-----***"],
        ),
    ],
)
def test_places(command: list[str], masked: list[str]) -> None:
    assert mask_command(command) == masked


@pytest.mark.parametrize(
    "command",
    [
        ["npm", "ci"],
        ["pytest", "-k", "token and not secret"],
        ["llm", "--max-tokens", "4096"],
        ["llm", "--max-tokens=4096"],
        ["git", "checkout", "3f2a8c1d9e4b5a6c7d8e9f0a1b2c3d4e5f6a7b8c"],
        ["git", "clone", "https://github.com/owner/repository"],
        ["ssh", "git@host"],
        ["git", "commit", "-m", "tokenizer: handle passwords"],
        ["x", "--api-key=$KEY"],
        ["x", "--token-file", "path"],
        ["python", "-m", "http.server", "8000"],
    ],
)
def test_what_is_no_secret_stays(command: list[str]) -> None:
    assert mask_command(command) == command


@given(st.lists(st.text()))
def test_any_command_line_keeps_its_words(command: list[str]) -> None:
    masked = mask_command(command)
    assert len(masked) == len(command)
    assert mask_command(masked) == masked or MASK in "".join(masked)
