"""The version of tinyhlo; the packaging reads it from here."""

VERSION = "0.1.0"
