"""The printed form of a Program: stable, diffable, one line a statement."""

from __future__ import annotations

from itertools import starmap

from tinyhlo.schedule.program import (
    Block,
    Buffer,
    Copy,
    Kernel,
    Launch,
    Place,
    Program,
    Swap,
    Switch,
    While,
)


def format_program(program: Program) -> str:
    """Buffers in and out, then statements, then each kernel's graph once."""
    lines = [
        f"program ({', '.join(map(format_buffer, program.inputs))}) -> "
        f"({', '.join(map(format_buffer, program.outputs))})",
        f"  arena {program.arena_bytes} bytes, {len(program.constants)} constants"
        + "".join(f", output {k} in input {j}" for k, j in program.aliases),
    ]
    kernels: dict[Kernel, None] = {}
    format_block(program.body, "  ", lines, kernels)
    for kernel in kernels:
        shared = "".join(f", result {k} in param {p}" for k, p in kernel.in_place)
        where = f"  # {', '.join(kernel.locations)}" if kernel.locations else ""
        lines.append(f"kernel {kernel.name}{shared}{where}")
        if kernel.flushes:
            lines.append("  # denormal numbers are zero")
        lines.extend(f"  # in memory: {why}" for why in dict.fromkeys(filter(None, kernel.why)))
        lines.extend("  " + line for line in str(kernel.graph).splitlines())
    return "\n".join(lines)


def format_buffer(buffer: Buffer) -> str:
    place = {Place.ARENA: f"@{buffer.position}", Place.SCALAR: "@register"}.get(buffer.place, "")
    return f"{buffer.name}{place}:{buffer.type}"


def format_piece(buffer: Buffer, offset: int) -> str:
    return format_buffer(buffer) + (f" from byte {offset}" if offset else "")


def format_block(block: Block, indent: str, lines: list[str], kernels: dict[Kernel, None]) -> None:
    for statement in block:
        match statement:
            case Launch(kernel=kernel, writes=writes):
                kernels[kernel] = None
                given = ", ".join(starmap(format_piece, statement.pieces))
                made = ", ".join(map(format_buffer, writes))
                lines.append(f"{indent}{made} = {kernel.name}({given})")
            case Copy(source=source, target=target):
                lines.append(f"{indent}{format_buffer(target)} = copy {format_buffer(source)}")
            case Swap(first=first, second=second):
                lines.append(f"{indent}swap {format_buffer(first)}, {format_buffer(second)}")
            case While(condition=condition, flag=flag, body=body, trip_count=count):
                times = f"  # {count} times" if count is not None else ""
                lines.append(f"{indent}loop{times}")
                format_block(condition, indent + "  ", lines, kernels)
                lines.append(f"{indent}while {flag.name}")
                format_block(body, indent + "  ", lines, kernels)
            case Switch(selector=selector, blocks=blocks):
                lines.append(f"{indent}switch {format_buffer(selector)}")
                for number, inner in enumerate(blocks):
                    lines.append(f"{indent}case {number}")
                    format_block(inner, indent + "  ", lines, kernels)
