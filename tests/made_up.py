"""Small notebooks for the tests of the suite and the gallery."""

from pathlib import Path

import nbformat

TITLE = "# A made-up notebook\n\nIt asks *nothing*, and takes 3 minutes."
PARAMETERS = 'profile = "demo"  # quick, demo or paper\nlimit = 3  # how many\nrate: float = 0.5  # how fast\n'


def notebook(folder: Path, name: str, *code: str, opening: str = TITLE, parameters: str = PARAMETERS, kernel="python3"):
    """Write a notebook with an opening, a cell of parameters, and code cells; return its path."""
    cells = [nbformat.v4.new_markdown_cell(opening)]
    if parameters:
        cells.append(nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]}))
    cells += [nbformat.v4.new_code_cell(source) for source in code]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    spec = {"name": kernel, "display_name": "Python 3", "language": "python"}
    path = folder / f"{name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec}), path)
    return path
