"""Asking before something that cannot be taken back."""

from __future__ import annotations

import sys

import click

from timerq.cli.base import BadInput, Failure


def confirm(question: str, would: str, otherwise: str) -> None:
    """Goes on where the answer to ``question`` is yes.

    Raises `Failure` with ``otherwise`` for no, and `BadInput` where there is no terminal to ask on: ``would`` is then
    told as what it would do.
    """
    if not sys.stdin.isatty():
        raise BadInput(f"this would {would}, and there is no terminal to ask on: add --yes")
    if not click.confirm(question, err=True):
        raise Failure(otherwise)
