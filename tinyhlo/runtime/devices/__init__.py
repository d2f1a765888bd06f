"""Devices beside the host: each API has a file, imported when it is asked for."""
