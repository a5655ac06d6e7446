"""Asking before something that cannot be taken back."""

from __future__ import annotations

import sys

import click

from timerq.cli.base import BadInput, Failure


def confirm(question: str, would: str, otherwise: str) -> None:
    """Goes on where the answer to ``question`` is yes.

    Raises `Failure` with ``otherwise`` for no, and `BadInput` where there is no terminal to ask on: ``would`` is then
    told as what it would do. Ctrl-C ends it as it does everywhere; the end of the input is a no.
    """
    if not sys.stdin.isatty():
        raise BadInput(f"this would {would}, and there is no terminal to ask on: add --yes")
    try:
        answer = click.confirm(question, err=True)
    except click.Abort as abort:  # click's word for both
        if not isinstance(abort.__context__, EOFError):
            raise KeyboardInterrupt from None
        click.echo(err=True)
        answer = False
    if not answer:
        raise Failure(otherwise)
