"""``dla runs`` lists the saved results below a folder; ``dla serve`` shows them in a browser."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from experiments.cli import options, results
from experiments.extras import require_plotly
from experiments.literal import say

Folder = Annotated[
    Path,
    typer.Argument(metavar="FOLDER", help="Folder of results, with all its folders."),
]
Port = Annotated[
    int,
    typer.Option("--port", metavar="N", min=0, max=65535, help="Use this port; 0 is any free one."),
]
DEFAULT_PORT = 8350


def runs(folder: Folder = Path("runs"), csv: options.Csv = None) -> None:
    """List the runs and sweeps below a folder, newest first, with time and check."""
    from experiments.collection.listing import Collector

    found = Collector(folder).collect()
    results.write_csv(csv, found.records())
    found.show()


def serve(folder: Folder = Path("runs"), port: Port = DEFAULT_PORT) -> None:
    """Show the runs and sweeps below a folder in a browser, until Ctrl-C.

    Only browsers on this computer can open the pages. The list shows the progress of sweeps.
    """
    require_plotly()
    from experiments.collection.server import ResultServer

    with ResultServer(folder, port) as server:
        say(f"serving {folder} at {server.address}; Ctrl-C ends it")
        sys.stdout.flush()
        server.serve_forever()
