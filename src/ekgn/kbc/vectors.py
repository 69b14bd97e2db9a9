"""The vectors of a trained run, for use elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np
from numpy.typing import NDArray

from ekgn.errors import EkgnError
from ekgn.files import replace_file
from ekgn.kbc.vocabulary import Vocabulary

if TYPE_CHECKING:
    import polars as pl

ENDINGS = (".parquet", ".npz", ".txt", ".vec")


@dataclass(frozen=True)
class Vectors:
    """A vector for each entity or relation, in the order of their ids."""

    ids: list[str]
    labels: list[str]
    array: NDArray[np.float32]

    def frame(self) -> pl.DataFrame:
        """As a polars data frame: id, label, vector."""
        import polars as pl

        vectors = pl.Series("vector", self.array, dtype=pl.Array(pl.Float32, self.array.shape[1]))
        return pl.DataFrame({"id": self.ids, "label": self.labels}).with_columns(vectors)

    def save(self, file: Path) -> None:
        """Write them by the file's ending: Parquet, NumPy's npz, or word2vec text (txt, vec)."""
        kind = file.suffix.casefold()
        if kind not in ENDINGS:
            raise EkgnError(
                f"Cannot write vectors to '{file}': expected a name ending in "
                f"{', '.join(ENDINGS)} (the last two: word2vec text)."
            )
        replace_file(file, lambda aside: self._write(aside, kind))

    def _write(self, aside: Path, kind: str) -> None:
        if kind == ".parquet":
            self.frame().write_parquet(aside)
        elif kind == ".npz":
            with aside.open("wb") as binary:
                ids, labels = np.array(self.ids), np.array(self.labels)
                np.savez(binary, vectors=self.array, ids=ids, labels=labels)
        else:
            with aside.open("w", encoding="utf-8") as text:
                self._as_word2vec(text)

    def _as_word2vec(self, text: TextIO) -> None:
        """Ids with white space, which would end a word there, have _ in its place."""
        text.write(f"{len(self.ids)} {self.array.shape[1]}\n")
        for name, row in zip(self.ids, self.array, strict=True):
            numbers = " ".join(f"{number:.7g}" for number in row.tolist())
            text.write(f"{'_'.join(name.split())} {numbers}\n")


def vectors_of(names: Vocabulary, array: NDArray[np.float32]) -> Vectors:
    """The vectors of a vocabulary."""
    return Vectors(list(names.ids), list(names.labels), array)
