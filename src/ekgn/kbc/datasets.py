"""The benchmarks that can be asked for by name: where they are, what they must contain.

A benchmark is looked for in the data directory (the argument, else EKGN_DATA), then in a folder of
the user's own ($XDG_DATA_HOME/ekgn), where downloads go; the data directory is never written to.
Its files are the published ones, byte for byte: checked by SHA-256, and by their counts once read.
"""

from __future__ import annotations

import hashlib
import http.client
import logging
import os
import shutil
import tempfile
import urllib.request
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from ekgn.errors import EkgnError, did_you_mean
from ekgn.kbc.triples import FORMATS, format_of, read_triples
from ekgn.kbc.unpack import COMPRESSIONS

logger = logging.getLogger(__name__)

SPLITS = ("train", "valid", "test")
_SPLIT_OF_STEM = {"train": "train", "test": "test"} | dict.fromkeys(
    ("valid", "validation", "dev"), "valid"
)
_WHOLE = ("triples", "facts", "graph", "data")
"""Names of one file that is still to be split; used where there is no train file."""
_TIMEOUT_SECONDS = 20
_ROTATE = "https://raw.githubusercontent.com/DeepGraphLearning/KnowledgeGraphEmbedding/master/data"
_VILLMOW = "https://raw.githubusercontent.com/villmow/datasets_knowledge_embedding/master"
_PYKEEN = "https://raw.githubusercontent.com/pykeen/pykeen/master/src/pykeen/datasets"


@dataclass(frozen=True)
class Benchmark:
    """One published graph: its files with checksums, its counts, and where it can be fetched."""

    name: str
    folder: str
    description: str
    triples: tuple[int, int, int]
    entities: int
    relations: int
    sha256: tuple[str, str, str]
    mirrors: tuple[str, ...]
    names: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(f"{split}.txt" for split in SPLITS)

    def check_sums(self, folder: Path, found: dict[str, str]) -> None:
        """Raise unless the SHA-256 of each split's file is the published one."""
        for split, expected in zip(SPLITS, self.sha256, strict=True):
            if found[split] != expected:
                raise EkgnError(
                    f"{folder / split}.txt is not the published {self.name} file: its sha256 is "
                    f"{found[split][:12]}..., expected {expected[:12]}.... Fetch it again, or use "
                    f"the files as they are by giving their directory as DATA: {folder.resolve()}"
                )

    def check_counts(self, triples: tuple[int, ...], entities: int, relations: int) -> None:
        """Raise unless the graph that was read has the published sizes."""
        for what, found, expected in (
            ("train / valid / test triples", triples, self.triples),
            ("entities", entities, self.entities),
            ("relations", relations, self.relations),
        ):
            if found != expected:
                raise EkgnError(f"{self.name} has {found} {what}, expected {expected}.")


_PUBLISHED = (
    Benchmark(
        name="WN18",
        folder="WN18",
        description="WordNet: words and their senses; most test facts have their inverse in train",
        triples=(141_442, 5_000, 5_000),
        entities=40_943,
        relations=18,
        sha256=(
            "24c9b02dc57d3ae8ca8467ce355995edee7be8eddc3bd070ee34d3c6fc3c95eb",
            "13347bfb5e17d1cae003e0bfe29b4716d3ab748e8cfb6af997138d37da3a51dc",
            "d22c19d176d4ba6a6f0d0c6bfce39ab3c16e3b20e1df6f9efe0d9ed86542fa10",
        ),
        mirrors=(
            _ROTATE + "/wn18",
            _VILLMOW + "/WN18/original",
        ),
        names="wn18_synset2name.tsv",
    ),
    Benchmark(
        name="WN18RR",
        folder="WN18RR",
        description="WN18 without the inverse relations",
        triples=(86_835, 3_034, 3_134),
        entities=40_943,
        relations=11,
        sha256=(
            "038612e783c215ee5f3ca9fbfca27b8d0739be1028fe4ee7c174aecf0b83d5df",
            "453ce7202afa58094a04d2b1560ee2b02660f1c260b32ce6651c8ccedd1028ab",
            "0383bceaaa1096cf3c03ec021ed0048068e2355dbfc0239b292cefdac821cec5",
        ),
        mirrors=(
            _ROTATE + "/wn18rr",
            _VILLMOW + "/WN18RR/original",
        ),
        names="wn18_synset2name.tsv",
    ),
    Benchmark(
        name="FB15k",
        folder="FB15k",
        description="Freebase: people, places, films; most test facts have their inverse in train",
        triples=(483_142, 50_000, 59_071),
        entities=14_951,
        relations=1_345,
        sha256=(
            "f9cdfd2685f6483bd3a499d433919b15d62f0715c6cf18b2ca30c2aa5c47a704",
            "471929cde9cf74b1caa8348c2b601c8010d6b2f2a56bae49b4ebfd14c9bce855",
            "5b60b4de325482c3368e22d0b7452d465b09a610fea0ce3768d8b1e8b5a7e42a",
        ),
        mirrors=(_ROTATE + "/FB15k",),
        names="fb_mid2name.tsv",
    ),
    Benchmark(
        name="FB15k-237",
        folder="FB15k-237",
        description="FB15k without inverse and duplicate relations",
        triples=(272_115, 17_535, 20_466),
        entities=14_541,
        relations=237,
        sha256=(
            "61099230e4439f90885ca9767739e31e8e32f54736fa1c35952b27997bc7c08a",
            "749cbe9d923bac7b9354da5614ecfed2e0220256d442c3e04a6b303db1f273d9",
            "e2e35e8e6113de220140b6f44dc71a5207b0fc6872d575e874aefe13259b655b",
        ),
        mirrors=(
            _VILLMOW + "/FB15k-237",
            _ROTATE + "/FB15k-237",
        ),
        names="fb_mid2name.tsv",
    ),
    Benchmark(
        name="Kinship",
        folder="kinship",
        description="Kinship terms of the Alyawarra people",
        triples=(8_544, 1_068, 1_074),
        entities=104,
        relations=25,
        sha256=(
            "738612111a6acf0e39662bde24c7e72a4d1edf20931beea077da367dda689731",
            "c56f8630a583178b1e569f11a64aa535ae1ce0b0912d8b1e24716be2b37f04da",
            "05e5733265761d55be9c05bfaff5a8d0808df46f9c1e9d66cc3f2fe114e43d88",
        ),
        mirrors=(_PYKEEN + "/kinships",),
    ),
    Benchmark(
        name="UMLS",
        folder="umls",
        description="Medical concepts and how they relate",
        triples=(5_216, 652, 661),
        entities=135,
        relations=46,
        sha256=(
            "873ef4925516b83e7f6f8cc02b4be51d848828710a7f65a956f0ac4a9e452f35",
            "025c98f8a4891e2a6582ec5b40ee0d904031edad9c52554522f4b7904820c98e",
            "a7eb529a3d2810fcc96341ccc97c625a5e202f8389673aa6bd317eeebbb79014",
        ),
        mirrors=(_PYKEEN + "/umls",),
    ),
    Benchmark(
        name="Nations",
        folder="nations",
        description="Relations between 14 nations in the 1950s and 60s",
        triples=(1_592, 199, 201),
        entities=14,
        relations=55,
        sha256=(
            "0830fa9da8e5bba2ccdaa45b7bdc9130451ba66b09ff2708f35fccaf82473e57",
            "2b337a62e51a2f45c283eac98a70d21b7e0e102136be1539b2a52c652a7b0530",
            "3971085165b47b6aeaec68058c6d8d98b3005e929db81268410b95ae4db770ab",
        ),
        mirrors=(_PYKEEN + "/nations",),
    ),
    Benchmark(
        name="Countries-S1",
        folder="countries_S1",
        description="Where countries lie; the continent follows from the region",
        triples=(1_111, 24, 24),
        entities=271,
        relations=2,
        sha256=(
            "5256bf3fc4181d7e87d819571e3acfa5425fc5af365b9ebe5c113740534ca561",
            "f4b27648148a44f87e627140ec3a02ca4c884c32d348591147ca72f1d6fff5b0",
            "262ca5ae5ed3aa1927026e0f258cc52b10830185b93465b93b9360727e719158",
        ),
        mirrors=(_ROTATE + "/countries_S1",),
    ),
    Benchmark(
        name="Countries-S2",
        folder="countries_S2",
        description="Where countries lie; the continent follows from neighbours",
        triples=(1_063, 24, 24),
        entities=271,
        relations=2,
        sha256=(
            "84c8f310fa076f902760f0909716b13bc0853a105ab9e0145e4e5135d855f68a",
            "f4b27648148a44f87e627140ec3a02ca4c884c32d348591147ca72f1d6fff5b0",
            "262ca5ae5ed3aa1927026e0f258cc52b10830185b93465b93b9360727e719158",
        ),
        mirrors=(_ROTATE + "/countries_S2",),
    ),
    Benchmark(
        name="Countries-S3",
        folder="countries_S3",
        description="Where countries lie; the continent follows from neighbours' regions",
        triples=(985, 24, 24),
        entities=271,
        relations=2,
        sha256=(
            "80a8e3a26aff58b78fd5a453ec2a37591466bad621df8d05185f26763b663a0c",
            "f4b27648148a44f87e627140ec3a02ca4c884c32d348591147ca72f1d6fff5b0",
            "262ca5ae5ed3aa1927026e0f258cc52b10830185b93465b93b9360727e719158",
        ),
        mirrors=(_ROTATE + "/countries_S3",),
    ),
)

BENCHMARKS = {benchmark.name.casefold(): benchmark for benchmark in _PUBLISHED}
BUNDLED = "world"
"""The small graph that comes with the package."""


@dataclass(frozen=True)
class DataFiles:
    """The files that make up one graph; splits without a file are held out from train."""

    name: str
    files: dict[str, Path]
    names: tuple[Path, ...] = ()
    benchmark: Benchmark | None = None


@dataclass(frozen=True)
class DatasetRow:
    """One line of `ekgn datasets`; `found` is the folder, or None where it must be fetched."""

    name: str
    description: str
    triples: int
    entities: int
    relations: int
    found: str | None


def dataset_table(data_dir: Path | None = None) -> list[DatasetRow]:
    """Every graph that can be asked for by name, with its size and where it was found."""
    rows = [_bundled_row()] if _bundled_folder() else []
    for key, known in BENCHMARKS.items():
        folder = _folder_of(known, search_places(data_dir))
        found = str(folder) if folder else None
        size = (sum(known.triples), known.entities, known.relations)
        rows.append(DatasetRow(key, known.description, *size, found))
    return rows


def find_data(data: str | Path, data_dir: Path | None = None) -> DataFiles:
    """The files behind DATA: a name from the table, a directory, or one file of triples.

    A name wins over a path that is spelled the same: write ./wn18 for a directory called wn18.
    """
    key = str(data).casefold().replace("_", "-")
    if isinstance(data, str) and key == BUNDLED:
        return _bundled()
    if isinstance(data, str) and key in BENCHMARKS:
        return _benchmark(BENCHMARKS[key], data_dir)
    path = Path(data).expanduser()
    if path.is_dir():
        return _directory(path)
    if path.exists():
        stem = path.name.partition(".")[0]
        dull = stem.casefold() in ("", *_WHOLE, *_SPLIT_OF_STEM)
        return DataFiles(path.resolve().parent.name if dull else stem, {"train": path})
    hint = did_you_mean(key, [BUNDLED, *BENCHMARKS])
    raise EkgnError(
        f"No data '{data}': expected a file, a directory, or one of {BUNDLED}, "
        f"{', '.join(BENCHMARKS)}. {hint}".rstrip()
    )


def search_places(data_dir: Path | None) -> list[Path]:
    """Where benchmarks are looked for, in order; downloads go to the last."""
    given = data_dir or os.environ.get("EKGN_DATA")
    own = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "ekgn"
    return [*([Path(given).expanduser()] if given else []), own]


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's content."""
    try:
        with path.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        raise EkgnError(f"Cannot read {path}: {error.strerror or error}") from None


def _directory(path: Path) -> DataFiles:
    """The split files and the names file of a directory."""
    found: dict[str, list[Path]] = {}
    try:
        content = sorted(path.iterdir())
    except OSError as error:
        raise EkgnError(f"Cannot read {path}: {error.strerror or error}") from None
    for file in content:
        stem = file.name.partition(".")[0].casefold()
        kind = "whole" if stem in _WHOLE else _SPLIT_OF_STEM.get(stem, stem)
        if kind in (*SPLITS, "names", "whole") and file.is_file() and format_of(file) in FORMATS:
            found.setdefault(kind, []).append(file)
    whole = found.pop("whole", [])
    if "train" not in found and whole:
        found["train"] = whole
    for kind, same in found.items():
        if len(same) > 1:
            listing = ", ".join(file.name for file in same)
            raise EkgnError(f"{path} has several {kind} files ({listing}): keep one of them.")
    if "train" not in found:
        others = ", ".join(file.name for file in content[:8]) or "nothing"
        raise EkgnError(
            f"{path} has no train file: expected train.txt or triples.txt (also "
            f"{' '.join(FORMATS[1:])}, with or without {' '.join(COMPRESSIONS)}), found {others}."
        )
    files = {split: found[split][0] for split in SPLITS if split in found}
    return DataFiles(path.resolve().name, files, tuple(found.get("names", ())))


def _bundled_folder() -> Path | None:
    folder = Path(str(resources.files("ekgn").joinpath("data", BUNDLED)))
    return folder if (folder / "train.tsv").is_file() else None


def _bundled() -> DataFiles:
    folder = _bundled_folder()
    if folder is None:
        raise EkgnError(f"The bundled graph '{BUNDLED}' is missing: install ekgn again.")
    found = _directory(folder)
    return DataFiles("World", found.files, found.names)


def _bundled_row() -> DatasetRow:
    """The bundled graph, counted from its files: they are small."""
    bundled = _bundled()
    frames = [read_triples(path).frame for path in bundled.files.values()]
    entities = {name for frame in frames for side in ("head", "tail") for name in frame[side]}
    relations = {name for frame in frames for name in frame["relation"]}
    return DatasetRow(
        BUNDLED,
        "Countries, cities, borders, languages and currencies; comes with ekgn",
        sum(len(frame) for frame in frames),
        len(entities),
        len(relations),
        str(bundled.files["train"].parent),
    )


def _benchmark(benchmark: Benchmark, data_dir: Path | None) -> DataFiles:
    """The files of a benchmark, fetched first if they are nowhere here."""
    places = search_places(data_dir)
    folder = _folder_of(benchmark, places) or _download(benchmark, places)
    files = {split: folder / f"{split}.txt" for split in SPLITS}
    names = [place / "names" / benchmark.names for place in places if benchmark.names]
    here = tuple(path for path in names if path.is_file())[:1]
    return DataFiles(benchmark.name, files, here, benchmark)


def _folder_of(benchmark: Benchmark, places: list[Path]) -> Path | None:
    """The first folder that holds all files of the benchmark."""
    for place in places:
        for name in dict.fromkeys((benchmark.folder, benchmark.name, benchmark.name.casefold())):
            if all((place / name / file).is_file() for file in benchmark.files):
                return place / name
    return None


def _download(benchmark: Benchmark, places: list[Path]) -> Path:
    """Fetch a benchmark into the user's own folder from the first mirror that has it right."""
    own = places[-1]
    failures = []
    for mirror in benchmark.mirrors:
        try:
            own.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=own, prefix=".download-") as aside:
                _fetch(benchmark, mirror, Path(aside))
                folder = own / benchmark.folder
                shutil.rmtree(folder, ignore_errors=True)
                (Path(aside) / benchmark.folder).rename(folder)
                return folder
        except (OSError, http.client.HTTPException, EkgnError) as error:
            failures.append(f"{mirror}: {error}")
    looked = ", ".join(str(place / benchmark.folder) for place in places)
    raise EkgnError(
        f"{benchmark.name} is not here and could not be downloaded.\n"
        f"Looked for train.txt, valid.txt, test.txt in: {looked}.\n"
        f"Tried: {'; '.join(failures)}.\n"
        f"If you have the files in DIR/{benchmark.folder}, set EKGN_DATA=DIR or use --data-dir DIR."
    )


def _fetch(benchmark: Benchmark, mirror: str, aside: Path) -> None:
    """Download and verify the three files of a benchmark into aside/folder."""
    folder = aside / benchmark.folder
    folder.mkdir()
    for file, expected in zip(benchmark.files, benchmark.sha256, strict=True):
        address = f"{mirror}/{file}"
        logger.info("Downloading %s", address)
        with urllib.request.urlopen(address, timeout=_TIMEOUT_SECONDS) as response:
            data: bytes = response.read()
        if _digest(data) != expected:
            # Some mirrors carry the same lines with Windows line ends.
            data = data.replace(b"\r\n", b"\n")
        if _digest(data) != expected:
            raise EkgnError(f"{file} is not the published file (sha256 {_digest(data)[:12]}...)")
        (folder / file).write_bytes(data)
        logger.info("Downloaded %s %s, %.1f MB", benchmark.name, file, len(data) / 1e6)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
