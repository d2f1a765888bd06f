"""A page for a browser with every form of every program that a process compiled (TINYHLO_VIZ).

In: the compiler's Stages and what the runtime counted. Out: one HTML file that needs no network:
kernels in the order in which they run, with times and where their inputs come from; what lies
where in memory, and when; the user's source with the time of each line; and of each kernel a
picture, its graph, loops, LLVM IR and instructions.

    TINYHLO_VIZ=page.html python train.py

Files: `describe.py` (forms as plain data), `page.py` (the file), and what a browser reads:
`page.html`, `page.css`, `page.js`.
"""

from tinyhlo.viewer.page import Page, page_to

__all__ = ["Page", "page_to"]
