"""Secrets of a payload are found again in an output, also in other clothes."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from actum.contract.canonical import canonical
from actum.executors.payload_secrets import has_none, leaks, secrets_of

SECRET = "tr0ub4dor-and-3"
PEM = "-----BEGIN PRIVATE KEY-----"


@pytest.mark.req("001-42")
@pytest.mark.parametrize(
    ("payload", "output"),
    [
        ({"password": SECRET}, SECRET),
        ({"db_password": SECRET}, {"a": [SECRET]}),
        ({"API-KEY": SECRET}, {SECRET: 1}),
        ({"auth": {"token": SECRET}}, f"Bearer {SECRET}"),
        ({"credentials": {"user": "joe", "key": SECRET}}, SECRET),
        ({"secret": [SECRET, "other"]}, ["x", SECRET]),
        ({"value": {"$secret": SECRET}}, SECRET),
        ({"password": SECRET}, SECRET.encode().hex()),
        ({"password": SECRET}, base64.b64encode(SECRET.encode()).decode()),
        ({"password": SECRET}, base64.urlsafe_b64encode(SECRET.encode()).decode()),
        ({"password": SECRET}, SECRET[::-1]),
        ({"password": "a b&c/d"}, "a%20b%26c%2Fd"),
        ({"pin_token": 483_920}, 483_920),
        ({"pin_token": 483_920}, "pin 483920"),
        ({"password": "ab"}, ["ab"]),
        ({"note": f"use {PEM}"}, PEM),
        ({"note": "ghp_" + "a" * 36}, "it was ghp_" + "a" * 36),
        ({"note": "AKIAABCDEFGHIJKLMNOP"}, {"k": "AKIAABCDEFGHIJKLMNOP"}),
    ],
)
def test_a_secret_is_found(payload: Any, output: Any) -> None:
    assert leaks(payload, output)


@pytest.mark.req("001-42")
@pytest.mark.parametrize(
    ("payload", "output"),
    [
        ({"text": SECRET}, SECRET),
        ({"password": SECRET}, "something else"),
        ({"password": ""}, ""),
        ({"password": None, "token": True}, [None, True]),
        ({"password": "ab"}, "abundance"),
        ({"tokenizer": "words"}, "words"),
        ({"password": SECRET}, None),
        ({}, {"password": SECRET}),
    ],
)
def test_what_is_no_secret_passes(payload: Any, output: Any) -> None:
    assert not leaks(payload, output)


WORDS = [
    *("password", "passwd", "passphrase", "secret", "token", "api_key", "api-key", "apikey"),
    *("private_key", "private-key", "privatekey", "credential", "credentials", "authorization"),
    *("cookie", "paſſword", "toKen"),
]
KINDS = (
    *(f"gh{letter}_{'a' * 20}" for letter in "pousr"),
    "-----BEGIN RSA PRIVATE KEY-----",
    PEM,
    f"glpat-{'b' * 16}",
    f"sk-{'c' * 16}",
    "AKIAABCDEFGHIJKLMNOP",
    "xoxb-0123456789",
    "eyJabcdefgh.eyJabcdefgh.x",
)


@pytest.mark.parametrize("around", ["", "x_", "_y", "a.", "-", "\n", '"', "\\", "\t", "é"])
def test_what_holds_a_secret_is_never_said_to_hold_none(around: str) -> None:
    for word in WORDS:
        for key in (around + word, word.upper() + around, word + around + "z"):
            payload = {"deep": [{key: SECRET}]}
            if secrets_of(payload):
                assert not has_none(canonical(payload).decode()), key
        assert secrets_of({word: SECRET})
    for kind in KINDS:
        payload = {"note": f"{around} {kind}", "more": [around + kind]}
        assert secrets_of(payload)
        assert not has_none(canonical(payload).decode()), kind


def test_a_plain_payload_is_said_to_hold_none() -> None:
    assert has_none(canonical({"text": "the quick brown fox"}).decode())
