"""How `fuzz_import` damages a file.

    mutated(random.Random(7), source, others)

In: a seeded generator, the bytes, other files of the same form. Out: other bytes. Text is damaged
both as bytes and as words: numbers grow, names and types change places, lines move.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

Mutation = Callable[[random.Random, bytes, Sequence[bytes]], bytes]

WORDS = re.compile(rb"%\w+(?:#\d+)?|@\w+|\d+|[a-z]\w*(?:\.\w+)*|[<>\[\](){}=,:]")
NUMBERS = (b"0", b"1", b"2", b"7", b"63", b"65536", b"2147483648", b"9223372036854775807", b"-1")
TYPES = (b"f32", b"i32", b"i1", b"bf16", b"f64", b"i4", b"complex<f32>", b"f8E4M3FN", b"ui64", b"?")


def flip_bits(r: random.Random, source: bytes, others: Sequence[bytes]) -> bytes:
    damaged = bytearray(source)
    for _ in range(r.choice((1, 1, 1, 2, 4, 16))):
        damaged[r.randrange(len(damaged))] ^= 1 << r.randrange(8)
    return bytes(damaged)


def replace_byte(r: random.Random, source: bytes, others: Sequence[bytes]) -> bytes:
    damaged = bytearray(source)
    damaged[r.randrange(len(damaged))] = r.choice((0, 1, 127, 128, 255, r.randrange(256)))
    return bytes(damaged)


def truncate(r: random.Random, source: bytes, others: Sequence[bytes]) -> bytes:
    return source[: r.randrange(len(source))]


def move_piece(r: random.Random, source: bytes, others: Sequence[bytes]) -> bytes:
    start, target = r.randrange(len(source)), r.randrange(len(source))
    piece = source[start : start + r.randrange(1, 64)]
    cut = r.choice((0, len(piece)))  # inserted, or written over what was there
    return source[:target] + piece + source[target + cut :]


def splice(r: random.Random, source: bytes, others: Sequence[bytes]) -> bytes:
    other = r.choice(others)
    start = r.randrange(len(other))
    target = r.randrange(len(source))
    return source[:target] + other[start : start + r.randrange(1, 256)] + source[target:]


def delete_piece(r: random.Random, source: bytes, others: Sequence[bytes]) -> bytes:
    start = r.randrange(len(source))
    return source[:start] + source[start + r.randrange(1, 32) :]


def garbage(r: random.Random, source: bytes, others: Sequence[bytes]) -> bytes:
    """Random bytes, behind the file's own head."""
    return source[: r.choice((0, 4, 16, 64))] + r.randbytes(r.randrange(1, 512))


def change_word(r: random.Random, source: bytes, others: Sequence[bytes]) -> bytes:
    """One number, name or type becomes another."""
    words = list(WORDS.finditer(source))
    word = r.choice(words)
    if word[0].isdigit():
        new = r.choice(NUMBERS)
    elif re.fullmatch(rb"[a-z]+\d+\w*|x[a-z]\w*", word[0]):
        new = r.choice(TYPES)
    else:
        new = r.choice(words)[0]
    return source[: word.start()] + new + source[word.end() :]


def move_line(r: random.Random, source: bytes, others: Sequence[bytes]) -> bytes:
    """A line is dropped, repeated elsewhere, or taken from another program."""
    lines = source.split(b"\n")
    line = r.choice((r.choice(lines), r.choice(r.choice(others).split(b"\n"))))
    position = r.randrange(len(lines))
    lines[position : position + r.choice((0, 1))] = [line] if r.random() < 0.7 else []
    return b"\n".join(lines)


BINARY: tuple[Mutation, ...] = (
    flip_bits,
    flip_bits,
    replace_byte,
    truncate,
    move_piece,
    splice,
    delete_piece,
    garbage,
)
TEXT: tuple[Mutation, ...] = (*BINARY[1:-1], change_word, change_word, change_word, move_line)


def mutated(r: random.Random, source: bytes, others: Sequence[bytes], text: bool) -> bytes:
    """One to three mutations."""
    for _ in range(r.choice((1, 1, 2, 3))):
        source = r.choice(TEXT if text else BINARY)(r, source or b" ", others)
        if text and not WORDS.search(source):
            break
    return source
