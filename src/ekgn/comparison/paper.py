"""Table 1 of the paper: the figures that it quotes, and its own."""

from __future__ import annotations

from dataclasses import dataclass, field

Figures = tuple[float, float | None]
"""Hits@10 in percent, and the mean rank where there is one."""


@dataclass(frozen=True)
class Quoted:
    """A row: the model, what it uses besides the facts, its figures by graph."""

    label: str
    auxiliary: str = ""
    figures: dict[str, Figures] = field(default_factory=dict)


def _row(label: str, *pairs: Figures | None, auxiliary: str = "") -> Quoted:
    graphs = zip(("WN18", "FB15k", "FB15k-237"), (*pairs, None, None), strict=False)
    return Quoted(label, auxiliary, {graph: pair for graph, pair in graphs if pair})


TABLE_1 = (
    _row("TransE", (89.2, 251), (47.1, 125)),
    _row("NTN", (66.1, None), (41.4, None)),
    _row("TransH", (86.7, 303), (64.4, 87)),
    _row("TransR", (92.0, 225), (68.7, 77)),
    _row("CTransR", (92.3, 218), (70.2, 75)),
    _row("KG2E", (93.2, 348), (74.0, 59)),
    _row("TransD", (92.2, 212), (77.3, 91)),
    _row("TATEC", None, (76.7, 58)),
    _row("DistMult", (94.2, None), (57.7, None), (41.9, 254)),
    _row("STransE", (93.4, 206), (79.7, 69)),
    _row("HolE", (94.9, None), (73.9, None)),
    _row("ComplEx", (94.7, None), (84.0, None)),
    _row("TransG", (94.9, 345), (88.2, 50)),
    _row("ConvE", (95.5, 504), (87.3, 64), (45.8, 330)),
    _row("ProjE", None, (88.4, 34)),
    _row("RTransE", None, (76.2, 50), auxiliary="paths"),
    _row("PTransE", None, (84.6, 58), auxiliary="paths"),
    _row("NLFeat", (94.3, None), (87.0, None), auxiliary="node and link features"),
    _row("Random Walk", (94.8, None), (74.7, None), auxiliary="paths"),
    _row("EKGN", (95.3, 249), (92.7, 38), (46.4, 211)),
)
